"""The hostile environments and policies of ``tests.rollout.hostile`` on one server: each costs its own session and no other.

The server is a process of ``palestra serve`` that serves every kind. While a kind plays, innocent environments play on the same
server, and one session stays open from the first kind to the last.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import msgspec
import pytest

import palestra
from palestra import Task, Trajectory
from palestra.adapters.loop_thread import run_anywhere
from tests.rollout.hostile import ENVS, INNOCENT, POLICIES, env_task, innocent_task

KINDS = [("env", name) for name in ENVS] + [("policy", name) for name in POLICIES]
SAMPLED = 41
"""One kind of this many is in the fast group."""
DEADLINE = 1.0
LATEST = DEADLINE + 10.0

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::UserWarning", "ignore::RuntimeWarning"
    ),
]


class Served(NamedTuple):
    url: str
    process: "subprocess.Popen[str]"

    def here(self, task: Task) -> Task:
        """The same task on the server."""
        return msgspec.structs.replace(task, env=f"remote:{self.url}#{task.env}")


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("palestra.rollout.driving"), "GRACE", 0.05)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("serve")
    ids = [INNOCENT, *(env_task(name, 0).env for name in ENVS)]
    with pytest.MonkeyPatch.context() as patch, (folder / "log").open("w") as log:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]))
        command = [sys.executable, "-m", "palestra.cli", "serve", *ids, "--token-file", str(folder / "token"), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            patch.setenv("PALESTRA_TOKEN", (folder / "token").read_text().strip())
            patch.setenv("PALESTRA_TOKEN_HOST", url.partition("://")[2])
            try:
                yield Served(url, process)
                assert process.poll() is None, "the server has ended"
            finally:
                process.terminate()
                assert process.wait(20) in (0, -15)


@pytest.fixture(scope="module")
def resident(served: Served) -> Iterator[palestra.Env]:
    """A session that is open while all kinds play."""
    with palestra.make(f"remote:{served.url}#{INNOCENT}") as env:
        env.reset(seed=1)
        yield env
        assert env.step("act")[1] == 1.0


async def all_of(stream: Any) -> list[Trajectory]:
    return [trajectory async for trajectory in stream]


@pytest.mark.parametrize(
    "kind",
    [kind if number % SAMPLED == 0 else pytest.param(kind, marks=pytest.mark.full) for number, kind in enumerate(KINDS)],
    ids=str,
)
def test_a_hostile_session_costs_no_other_session(kind: tuple[str, str], served: Served, resident: palestra.Env) -> None:
    side, name = kind
    policy = POLICIES[name]() if side == "policy" else lambda text: "act"
    hostile = [env_task(name, seed) if side == "env" else innocent_task(seed) for seed in (1, 3)]
    tasks = [served.here(task) for pair in zip(hostile, map(innocent_task, (2, 4)), strict=True) for task in pair]
    began = monotonic()
    played = run_anywhere(all_of(palestra.rollout(tasks, policy, deadline=DEADLINE, retries=0)))
    assert monotonic() - began < LATEST
    assert {trajectory.group for trajectory in played} == set(range(4))
    for trajectory in played:
        if trajectory.task.seed % 2 == 0:
            assert (trajectory.reward, trajectory.failures) == (1.0, ())
        else:
            assert (trajectory.reward is None) == trajectory.stop.failed
    assert served.process.poll() is None
