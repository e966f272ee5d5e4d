"""The hostile environments and policies of ``tests.rollouts.hostile`` on one server: each costs its own session and no other.

The server is a process of ``palestra serve`` that serves every kind. While a kind plays, innocent environments play on the same
server, and one session stays open from the first kind to the last.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec
import pytest

import palestra
from palestra import Task, Trajectory
from palestra.adapters.loop_thread import run_anywhere
from tests.rollouts.hostile import ENVS, INNOCENT, POLICIES, env_task, innocent_task

KINDS = [("env", name) for name in ENVS] + [("policy", name) for name in POLICIES]
SAMPLED = 41
"""One kind of this many is in the fast group."""
DEADLINE = 1.0
LATEST = DEADLINE + 10.0

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::UserWarning", "ignore::RuntimeWarning"
    )
]


class Served(NamedTuple):
    url: str
    process: "subprocess.Popen[str]"

    def here(self, task: Task) -> Task:
        """The same task on the server."""
        return msgspec.structs.replace(task, env=f"remote:{self.url}#{task.env}")


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("palestra.rollouts.driving"), "GRACE", 0.05)


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


@pytest.mark.parametrize(
    "kind",
    [kind if number % SAMPLED == 0 else pytest.param(kind, marks=pytest.mark.full) for number, kind in enumerate(KINDS)],
    ids=str,
)
def test_a_hostile_session_costs_no_other_session(kind: tuple[str, str], served: Served, resident: palestra.Env) -> None:
    side, name = kind
    policy = POLICIES[name]() if side == "policy" else lambda text: "act"
    hostile = [env_task(name, seed) if side == "env" else innocent_task(seed) for seed in (1, 3)]
    innocent = [innocent_task(seed) for seed in (2, 4)]
    began = monotonic()
    took: list[float] = []

    async def played(tasks: list[Task], deadline: float) -> list[Trajectory]:
        stream = palestra.rollout([served.here(task) for task in tasks], policy, deadline=deadline, retries=0)
        trajectories = [trajectory async for trajectory in stream]
        took.append(monotonic() - began)
        return trajectories

    async def both() -> tuple[list[Trajectory], list[Trajectory]]:
        # A busy machine does not make an innocent episode late.
        return await asyncio.gather(played(hostile, DEADLINE), played(innocent, 60.0))

    costing, unharmed = run_anywhere(both())
    assert max(took) < LATEST
    assert [(one.reward, one.failures) for one in unharmed] == [(1.0, ()), (1.0, ())]
    assert len(costing) == 2
    assert all((one.reward is None) == one.stop.failed for one in costing)
    assert served.process.poll() is None
