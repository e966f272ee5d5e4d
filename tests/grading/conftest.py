from collections.abc import AsyncIterator

import pytest

from palestra.grading.code import CodeJudge
from palestra.sandbox import Bubblewrap


@pytest.fixture
async def judge() -> AsyncIterator[CodeJudge]:
    async with Bubblewrap(warm=1) as sandbox:
        yield CodeJudge(sandbox=sandbox, wall_seconds=20.0)
