from importlib.util import find_spec

import pytest
from tests.tools.many_episodes import episodes

pytestmark = [pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed") for name in ("mcp", "tantivy")]


@pytest.mark.gate
@pytest.mark.slow
async def test_every_call_is_accounted_and_nothing_is_left_behind() -> None:
    # The long version, 256 episodes, is a command: python benchmarks/tools.py --episodes
    result = await episodes(count=16, calls=4, faults=0.1)
    assert result["finished"] == 16
    assert result["calls"] == 64
    assert result["left"] == {"fds": 0, "processes": 0}
    assert set(result["totals"]) <= {"ok", "failed", "crashed", "timeout"}
    assert len(result["totals"]) > 1
