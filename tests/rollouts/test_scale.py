"""The numbers the spine must show: faults, determinism, and ten thousand episodes at once."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from palestra import StopReason, Task, Trajectory
from palestra.errors import Boundary
from palestra.registry import register, unregister
from palestra.rollouts import collect
from palestra.trajectory import Phase
from tests.leftovers import alive, nothing_left
from tests.rollouts.faulty import FAULTS, CountCloses, Faulty, fault_of

N, CONCURRENCY, DEADLINE = 1000, 128, 5.0


def _run(id: str, closes: Counter[int]) -> tuple[list[Trajectory], float]:
    began = time.perf_counter()
    with nothing_left():
        played = collect(
            [Task(id, seed) for seed in range(N)],
            lambda text: "x",
            concurrency=CONCURRENCY,
            deadline=DEADLINE,
            wrappers=[lambda env: CountCloses(env, closes)],
        )
    return played, time.perf_counter() - began


@pytest.mark.alone
@pytest.mark.slow
def test_a_thousand_episodes_of_which_a_fifth_fail_in_four_ways(tmp_path: Path) -> None:
    book = tmp_path / "closes"
    register("test:Sound-v0", Faulty, kwargs={"faults": False})
    register("test:Faulty-v0", Faulty, kwargs={"book": str(book)})
    closes: Counter[int] = Counter()
    try:
        _, sound_seconds = _run("test:Sound-v0", Counter())
        played, seconds = _run("test:Faulty-v0", closes)
    finally:
        unregister("test:Sound-v0")
        unregister("test:Faulty-v0")

    assert [t.task.seed for t in played] == list(range(N))
    expected = {
        "raise": (StopReason.ERROR, Boundary.ENV, Phase.STEP, "KeyError"),
        "hang": (StopReason.DEADLINE, Boundary.ENV, Phase.STEP, "Deadline"),
        "reset": (StopReason.ERROR, Boundary.ENV, Phase.RESET, "RuntimeError"),
        "close": (StopReason.TERMINATED, Boundary.ENV, Phase.CLOSE, "RuntimeError"),
    }
    for trajectory in played:
        fault = fault_of(trajectory.task)
        told = [(trajectory.stop, f.boundary, f.phase, f.kind) for f in trajectory.failures]
        assert told == ([] if fault is None else [expected[fault]])
        assert trajectory.reward == (3.0 if fault in (None, "close") else None)
    assert Counter(fault_of(t.task) for t in played if t.failures) == dict.fromkeys(FAULTS, N // 20)

    assert len(closes) == N
    assert set(closes.values()) == {1}
    # In the worker's own book: once each, but for those that were killed because they hung.
    in_worker = Counter(int(line) for line in book.read_text().split())
    assert in_worker == {t.task.seed: 1 for t in played if fault_of(t.task) != "hang"}
    assert not any(alive(t.info["pid"]) for t in played if "pid" in t.info)
    print(f"fault-free {sound_seconds:.2f} s, with faults {seconds:.2f} s")
    assert seconds <= 1.3 * sound_seconds + DEADLINE


DIGEST = """
import hashlib, sys
from palestra import collect, list_envs
ids = [known.id for known in list_envs("game") if not known.missing()]
for concurrency in map(int, sys.argv[1:]):
    digest = hashlib.sha256()
    for trajectory in collect(ids, "random", n=-(-1000 // len(ids)), seed=11, concurrency=concurrency):
        assert not trajectory.failures
        digest.update(trajectory.digest().encode())
    print(digest.hexdigest())
"""


@pytest.mark.slow
def test_a_thousand_trajectories_are_the_same_at_any_concurrency_and_hash_seed() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DIGEST, "1", "8", "64"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "12345")
    ]
    digests = [line for process in processes for line in process.communicate()[0].split()]
    assert len(digests) == 6
    assert len(set(digests)) == 1
