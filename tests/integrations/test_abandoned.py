"""The test for leaks can fail: it finds what is not closed, and a loop that began too few episodes."""

import threading

import pytest

from palestra.integrations.leases import LentEnv
from tests.integrations.abandoned import HELD, Held, all_closed


def begin(count: int) -> None:
    for number in range(count):
        LentEnv(HELD).reset(seed=number)


def test_what_is_dropped_is_closed() -> None:
    with all_closed(10):
        begin(10)
    assert Held.made == 10


def test_what_is_not_closed_is_found() -> None:
    kept: list[LentEnv] = []
    stop = threading.Event()

    def keep(count: int) -> None:
        threading.Thread(target=stop.wait, name="palestra-kept", daemon=True).start()
        for number in range(count):
            kept.append(LentEnv(HELD))
            kept[-1].reset(seed=number)

    expected = r"50 of 50 environments are open; processes: \[\d+\], threads: \[.*'palestra-kept'"
    with pytest.raises(AssertionError, match=expected), all_closed(50, seconds=0.1):
        keep(50)
    stop.set()
    for lent in kept:
        lent.close()


def test_a_loop_that_begins_too_few_episodes_is_found() -> None:
    with pytest.raises(AssertionError, match="began 3 of 4 episodes"), all_closed(4):
        begin(3)
