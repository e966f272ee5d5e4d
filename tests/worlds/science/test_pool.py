"""Java processes: how many there are, and what happens when one of them, or the Python process, is killed."""

import os
import signal
import subprocess
import sys
from time import monotonic, sleep

import pytest
from tests.leftovers import alive

from palestra.errors import InfrastructureError
from palestra.registry import make, spec
from palestra.worlds.science.jvm import Jvm, Seat
from palestra.worlds.science.pool import FEW, SEATS, Pool, shared_pool

ID = "science:find-animal-test"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # Java starts late on a busy machine


@pytest.fixture(autouse=True, scope="module")
def _installed_and_without_processes() -> None:
    spec(ID).factory()
    shared_pool().end()  # other tests of this process may have left two


def taken(pool: Pool) -> Seat:
    seat = pool.seat()
    assert seat is not None
    return seat


def test_a_second_process_starts_only_for_many_episodes_and_never_a_third() -> None:
    pool = Pool(most=2)
    seats = [taken(pool) for _ in range(FEW)]
    assert len(pool.jvms) == 1
    seats += [taken(pool) for _ in range(2 * SEATS - FEW)]
    assert [jvm.seats for jvm in pool.jvms] == [SEATS, SEATS]
    assert pool.seat() is None  # one more episode would not fit into the memory
    assert [jvm.pid for jvm in pool.jvms] == [None, None]  # nothing starts before the first call
    for seat in seats:
        seat.leave()
    assert [jvm.seats for jvm in pool.jvms] == [0, 0]
    pool.end()


@pytest.mark.gate
def test_a_step_after_the_process_was_killed_is_an_infrastructure_failure_and_a_reset_starts_another() -> None:
    with make(ID) as env:
        env.reset(seed=0)
        (jvm,) = shared_pool().jvms
        assert jvm.pid is not None
        os.kill(jvm.pid, signal.SIGKILL)
        with pytest.raises(InfrastructureError, match=f"the Java process {jvm.pid} of ScienceWorld ended"):
            env.step("Action: look around")
        env.reset(seed=0)
        (other,) = shared_pool().jvms
        assert other.pid != jvm.pid


def wait_until_gone(pid: int) -> None:
    until = monotonic() + 120
    while alive(pid):
        assert monotonic() < until, f"process {pid} is still running"
        sleep(0.02)


STARTS_ONE = f"""
import os, palestra, signal
from palestra.worlds.science.pool import shared_pool
env = palestra.make({ID!r})
env.reset(seed=0)


def forked(then):  # a child that closes the episode of its parent
    child = os.fork()
    if child == 0:
        signal.alarm(300)  # a child that hangs ends all the same, and not with 0
        code = 1
        try:
            assert shared_pool().jvms == ()
            env.close()  # it waits for no thread of its parent
            then()
            code = 0
        finally:
            os._exit(code)
    return child


ended = os.waitstatus_to_exitcode(os.waitpid(forked(lambda: None), 0)[1])
outlives = forked(lambda: os.read(HOLD, 1))  # it must not keep the Java process alive
os.close(HOLD)
print(shared_pool().jvms[0].pid, outlives, ended, flush=True)
env.step("Action: look around")  # no child closed the connection
print("played", flush=True)
os.read(0, 1)
"""


@pytest.mark.gate
@pytest.mark.parametrize("end", ["exit", "kill"])
def test_the_java_process_ends_with_its_python_process(end: str) -> None:
    hold, let_go = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", f"HOLD = {hold}\n{STARTS_ONE}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[hold],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    ) as parent:
        os.close(hold)
        assert parent.stdin is not None
        assert parent.stdout is not None
        java, child, ended = map(int, parent.stdout.readline().split())
        try:
            assert ended == 0
            assert parent.stdout.readline() == b"played\n"
            assert alive(java)
            if end == "kill":
                parent.kill()
            parent.stdin.close()
            assert parent.wait(120) == (-signal.SIGKILL if end == "kill" else 0)
            wait_until_gone(java)
            assert alive(child)
        finally:
            os.close(let_go)
            wait_until_gone(child)


async def test_a_process_that_cannot_start_is_an_infrastructure_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.worlds.science.jvm.JAVA_OPTIONS", ("-XX:NoSuchOption=1",))
    jvm = Jvm()
    with pytest.raises(
        InfrastructureError, match=r"ended or did not answer.*Java wrote: Unrecognized VM option 'NoSuchOption=1'"
    ):
        await jvm.call(lambda shared: None)
    with pytest.raises(InfrastructureError):
        await jvm.call(lambda shared: None)
    assert not jvm.alive
