"""The thread of a Java process: calls in order, failures to their callers, and an end that waits for nothing."""

from threading import Event, current_thread

import pytest

from palestra.worlds.science.calls import CallThread


def test_calls_run_in_order_in_one_daemon_thread() -> None:
    thread, seen = CallThread("calls"), []
    made = [thread.submit(lambda place=place: seen.append((place, current_thread()))) for place in range(20)]
    for future in made:
        future.result(60)
    assert [place for place, _ in seen] == list(range(20))
    (only,) = {worker for _, worker in seen}
    assert only.daemon
    thread.close()
    only.join(60)
    assert not only.is_alive()


def test_an_exception_goes_to_its_caller_and_the_next_call_runs() -> None:
    thread = CallThread("calls")
    failed, fine = thread.submit(int, "x"), thread.submit(int, "7")
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(60)
    assert fine.result(60) == 7
    thread.close()


def test_a_closed_thread_finishes_what_waits_and_refuses_the_rest() -> None:
    thread, free = CallThread("calls"), Event()
    first, second, dropped = thread.submit(free.wait, 60), thread.submit(int, "2"), thread.submit(int, "3")
    assert dropped.cancel()
    thread.close()
    thread.close()
    with pytest.raises(RuntimeError, match="closed"):
        thread.submit(int, "4")
    free.set()
    assert (first.result(60), second.result(60)) == (True, 2)
