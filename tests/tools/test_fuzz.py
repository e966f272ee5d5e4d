import pytest
from tests.tools.fuzzing import TARGETS, fuzz


@pytest.mark.gate
@pytest.mark.slow
def test_readers_neither_crash_nor_hang() -> None:
    # The long version, a million inputs, is a command: python benchmarks/tools.py --fuzz
    assert len(TARGETS) >= 8
    assert fuzz(8_000, seed=1) < 0.1
