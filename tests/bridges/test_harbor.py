"""Harbor's own trials in our box: the same rewards as our environment gives, and nothing left behind."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor")

from harbor.agents.nop import NopAgent
from harbor.models.trajectories.trajectory import Trajectory as Document
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

from palestra import collect
from palestra.core import Step
from palestra.errors import EpisodeError
from palestra.interchange import write_atif
from palestra.worlds.harbor.env import Harbor
from palestra.worlds.harbor.export import export_tasks
from palestra.worlds.harbor.players import nop
from palestra.worlds.terminal.families import FAMILIES
from tests.leftovers import nothing_left_here
from tests.worlds.harbor.folders import write
from tests.worlds.harbor.trials import TRIALS

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

AT_ONCE = 4
ABANDONED = 100
"""Fewer than the thousand of other bridges, since each of these episodes has a box of its own."""
Found = dict[str, float] | None


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))


def config(folder: Path, out: Path, agent: str, **kwargs: Any) -> TrialConfig:
    box = EnvironmentConfig(import_path="palestra.bridges.harbor:Box", kwargs={"base": "host", "offline": True, **kwargs})
    return TrialConfig(task=TaskConfig(path=folder), trials_dir=out, agent=AgentConfig(name=agent), environment=box)


async def theirs(folder: Path, out: Path, agent: str) -> Found:
    """The rewards that Harbor reports; ``None`` if its verifier has failed."""
    result = await (await Trial.create(config(folder, out, agent))).run()
    return None if result.verifier_result is None else result.verifier_result.rewards


async def ours(folder: Path, agent: str) -> Found:
    """The rewards of our environment; ``None`` if the grader has failed."""
    env = Harbor(f"{folder}?base=host")
    try:
        await env.reset(seed=0)
        step: Step | None = None
        while step is None or not (step.terminated or step.truncated):
            step = await env.step(await env.oracle() if agent == "oracle" else nop(""))
        return dict(step.info["metrics"])
    except EpisodeError:
        return None
    finally:
        await env.close()


async def test_the_same_rewards_as_harbors_own_trials(tmp_path: Path) -> None:
    assert len(TRIALS) >= 60
    folders = {name: write(tmp_path / "tasks" / name, case.files, case.toml) for name, case in TRIALS.items()}
    slots = asyncio.Semaphore(AT_ONCE)

    async def both(name: str, agent: str) -> tuple[Found, Found]:
        async with slots:
            return await theirs(folders[name], tmp_path / "trials", agent), await ours(folders[name], agent)

    keys = [(name, agent) for name in folders for agent in ("oracle", "nop")]
    async with asyncio.TaskGroup() as group:
        tasks = {key: group.create_task(both(*key)) for key in keys}
    found = {key: task.result() for key, task in tasks.items()}
    different = {key: pair for key, pair in found.items() if pair[0] != pair[1]}
    assert different == {}
    assert sum(pair[0] is None for pair in found.values()) >= 30, "faults of verifiers are no zeros"


async def test_exported_terminal_tasks_in_harbors_own_trials(tmp_path: Path) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def scores(family: str) -> list[Found]:
        async with slots:
            folder = export_tasks(f"terminal:{family}-v0-medium", tmp_path / "tasks", [7])[0]
            return [await theirs(folder, tmp_path / "trials", agent) for agent in ("oracle", "nop")]

    async with asyncio.TaskGroup() as group:
        tasks = {family: group.create_task(scores(family)) for family in FAMILIES}
    found = {family: task.result() for family, task in tasks.items()}
    assert found == {family: [{"reward": 1.0}, {"reward": 0.0}] for family in FAMILIES}


async def test_commands_files_and_what_is_refused(tmp_path: Path) -> None:
    from palestra.bridges.harbor import Box

    trial = await Trial.create(config(write(tmp_path / "task"), tmp_path / "trials", "nop"))
    env = trial.agent_environment
    assert isinstance(env, Box)
    await env.start(force_build=False)
    try:
        done = await env.exec("echo out; echo err >&2; exit 3", env={"A": "b c"})
        assert (done.stdout, done.stderr, done.return_code) == ("out\n", "err\n", 3)
        assert (await env.exec('echo "$A"; pwd', cwd="/tmp", env={"A": "b c"})).stdout == "b c\n/tmp\n"
        assert (await env.exec("cat", timeout_sec=10)).return_code == 0, "there is no input"
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            await env.exec("sleep 60", timeout_sec=1)
        assert ".palestra" not in (await env.exec("ls -A /tmp | grep -v $(basename $0 .sh)")).stdout, "nothing stays of it"
        emptied = await env.exec("echo lost; find /tmp -mindepth 1 -delete; exit 4")
        assert (emptied.stdout, emptied.return_code) == ("", 4), "its output was in /tmp"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(env.exec("sleep 60"), 1.0)
        await env.exec("sleep 100 > /dev/null 2>&1 & echo $! > /tmp/pid")
        assert (await env.exec("kill -0 $(cat /tmp/pid)")).return_code == 0, "processes stay between commands"
        assert (await env.exec(f"echo {'x' * 100_000} | wc -c")).stdout == "100001\n"
        with pytest.raises(ValueError, match="one user, root"):
            await env.exec("id", user="alice")
        source = tmp_path / "source"
        (source / "deep").mkdir(parents=True)
        (source / "deep/run.sh").write_text("#!/bin/sh\necho ran\n")
        (source / "deep/run.sh").chmod(0o755)
        await env.upload_dir(source, "/data/in")
        assert (await env.exec("/data/in/deep/run.sh; ls -A /data/in")).stdout == "ran\ndeep\n"
        await env.exec("ln -s /data/in /link; ln -s /etc/passwd /data/in/out; ln -s deep /data/in/inside")
        await env.upload_file(source / "deep/run.sh", "/link/more.sh")
        await env.download_dir("/link", tmp_path / "back")
        assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["deep", "inside", "more.sh"]
        await env.download_file("/link/more.sh", tmp_path / "one.sh")
        assert (tmp_path / "one.sh").read_text() == (source / "deep/run.sh").read_text()
    finally:
        await env.stop(delete=True)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"environment/docker-compose.yaml": "services: {main: {}}\n"}, "several services"),
        ({"environment/Dockerfile": "FROM debian:12\nRUN apt-get install -y x\n"}, "needs a network"),
    ],
)
async def test_what_a_box_cannot_do_is_an_exception_and_no_zero(files: dict[str, str], says: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "task", files)
    result = await (await Trial.create(config(folder, tmp_path / "trials", "oracle"))).run()
    assert result.verifier_result is None
    assert says in json.dumps(result.model_dump(mode="json")["exception_info"])


async def test_a_list_of_hosts_is_refused_and_a_public_network_needs_the_option(tmp_path: Path) -> None:
    folder = write(tmp_path / "task", toml='schema_version = "1.4"\n')
    with pytest.raises(ValueError, match="offline=true"):
        await Trial.create(config(folder, tmp_path / "trials", "oracle", offline=False))
    hosts = write(tmp_path / "hosts", toml='[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]\n')
    with pytest.raises(ValueError, match="allowlist"):
        await Trial.create(config(hosts, tmp_path / "trials", "oracle"))


class Stuck(NopAgent):
    """An agent whose command never ends, with a process in the background."""

    begun = 0

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        await environment.exec("sleep 3600 > /dev/null 2>&1 &")
        Stuck.begun += 1
        await environment.exec("sleep 3600")


async def test_trials_that_harbor_abandons_leave_no_box(tmp_path: Path) -> None:
    folder, agent = write(tmp_path / "task"), AgentConfig(import_path="tests.bridges.test_harbor:Stuck")

    async def trial(number: int) -> None:
        named = {"agent": agent, "trial_name": f"trial-{number}"}
        await (await Trial.create(config(folder, tmp_path / "trials", "nop").model_copy(update=named))).run()

    async def abandon(first: int) -> None:
        """Cancel a few trials as soon as the last of them has begun; some still start their command, others wait for it."""
        running = [asyncio.ensure_future(trial(first + number)) for number in range(AT_ONCE)]
        async with asyncio.timeout(300):  # against hangs
            while Stuck.begun < first + AT_ONCE and not any(one.done() for one in running):
                await asyncio.sleep(0.01)
        for one in running:
            one.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * AT_ONCE

    await abandon(0)  # what Harbor itself opens once stays open
    async with nothing_left_here():
        for first in range(AT_ONCE, ABANDONED, AT_ONCE):
            await abandon(first)
    assert Stuck.begun == ABANDONED


def test_harbor_reads_our_documents(tmp_path: Path) -> None:
    played = collect("game:Sudoku-v0-easy", "random", n=4, progress=False)
    write_atif(played, tmp_path)
    documents = [Document.model_validate_json(file.read_bytes()) for file in sorted(tmp_path.glob("*.json"))]
    assert {document.schema_version for document in documents} == {"ATIF-v1.7"}
    assert [len(document.steps) for document in documents] == [len(one.turns) + 1 for one in played]
