import shutil
from collections.abc import AsyncIterator, Callable

import pytest

from palestra.sandbox import Bubblewrap, Outcome, Program, Unboxed
from palestra.testing.sandboxes import CHECKS, SandboxCheck, conformance


@pytest.fixture
async def boxes() -> AsyncIterator[Bubblewrap]:
    assert shutil.which("bwrap"), "these tests need bubblewrap: apt-get install bubblewrap"
    async with Bubblewrap(warm=2) as sandbox:
        yield sandbox


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_bubblewrap_keeps_the_contract(check: SandboxCheck, boxes: Bubblewrap) -> None:
    await check(boxes)


@pytest.mark.gate
@pytest.mark.slow
async def test_unboxed_keeps_the_contract_too_and_warns() -> None:
    with pytest.warns(UserWarning, match="your own rights"):
        sandbox = Unboxed()
    async with sandbox:
        assert [result for result in await conformance(sandbox) if result.problem] == []


async def test_the_suite_finds_a_provider_that_lies(boxes: Bubblewrap) -> None:
    class Lying(Bubblewrap):
        async def run(self, program: Program, *, begun: Callable[[], None] | None = None) -> Outcome:
            return Outcome(stdout=b"out\n", exit_code=0)

    async with Lying() as sandbox:
        broken = {result.check for result in await conformance(sandbox) if result.problem}
    assert {"prints_to_both_streams", "ends_on_time", "brings_files_out", "bounds_output"} <= broken
    assert "keeps_a_session" not in broken
