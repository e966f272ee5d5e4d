import shutil
from collections.abc import AsyncIterator

import pytest

from palestra.sandbox import Bubblewrap


@pytest.fixture
async def boxes() -> AsyncIterator[Bubblewrap]:
    assert shutil.which("bwrap"), "these tests need bubblewrap: apt-get install bubblewrap"
    async with Bubblewrap(warm=2) as sandbox:
        yield sandbox
