import pytest

from palestra.sandbox import Bubblewrap, Outcome, Program, Unboxed
from palestra.sandbox.conformance import CHECKS, Check, conformance


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_bubblewrap_keeps_the_contract(check: Check, boxes: Bubblewrap) -> None:
    await check(boxes)


async def test_unboxed_keeps_the_contract_too_and_warns() -> None:
    with pytest.warns(UserWarning, match="your own rights"):
        sandbox = Unboxed()
    async with sandbox:
        assert [finding for finding in await conformance(sandbox) if finding.problem] == []


async def test_the_suite_finds_a_provider_that_lies(boxes: Bubblewrap) -> None:
    class Lying(Bubblewrap):
        async def run(self, program: Program) -> Outcome:
            return Outcome(stdout=b"out\n", exit_code=0)

    async with Lying() as sandbox:
        broken = {finding.check for finding in await conformance(sandbox) if finding.problem}
    assert {"prints_to_both_streams", "ends_on_time", "brings_files_out", "bounds_output"} <= broken
    assert "keeps_a_session" not in broken
