"""Servers that the run starts: started, awaited, killed, restarted, stopped; and no generation is lost or wrong."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.inference.servers.servers import next_token

from palestra.core import Sampling
from palestra.errors import InfrastructureError, UsageError
from palestra.foundation.encoding import ints
from palestra.inference.servers import launching
from palestra.inference.servers.launching import Fleet, LaunchedEngine, ServerCommand, server_commands, tied
from palestra.inference.servers.replica import ServerReplica
from palestra.inference.servers.vllm import VLLMEngine
from palestra.recipes.config import TrainConfig
from palestra.training.assembly import first_model
from palestra.training.estimate import estimate

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

STUB = [sys.executable, "-m", "tests.inference.servers.stub_server", "{port}"]
ROOT = Path(__file__).parents[3]


def settings(**changes: Any) -> TrainConfig:
    launch = {"command": STUB, "replicas": 2, **changes.pop("launch", {})}
    data = {"model": {"path": "m", **changes}, "envs": {"game:x": 1.0}, "steps": 1}
    return msgspec.convert({**data, "engine": {"kind": "vllm", "launch": launch}}, TrainConfig)


def commands_of(config: TrainConfig, model: str = "m") -> list[ServerCommand]:
    return server_commands(config.engine, model, config.model.device)


class Folders:
    """Stands for ``ServedEngine``: the folder of weights is a name."""

    def __init__(self, servers: VLLMEngine) -> None:
        self.servers = servers
        self.context_length = 0

    @property
    def version(self) -> int:
        return self.servers.version

    async def generate(self, *arguments: Any) -> Any:
        return await self.servers.generate(*arguments)

    async def update_weights(self, source: str, version: int) -> None:
        if not self.context_length:
            await self.servers.connect()
            self.context_length = self.servers.context_length
        await self.servers.update_weights(source, version)

    async def close(self) -> None:
        await self.servers.close()


def launched(folder: Path, say: list[str], commands: list[ServerCommand] | None = None) -> tuple[LaunchedEngine, Fleet]:
    commands = commands or commands_of(settings())
    servers = VLLMEngine([command.url for command in commands], timeout=30.0)
    fleet = Fleet(commands, folder, patience=120.0, restarted=servers.suspect, say=say.append)
    return LaunchedEngine(Folders(servers), servers, fleet), fleet  # type: ignore[arg-type]


def expected(prompt: list[int], count: int, weights: str) -> list[int]:
    ids: list[int] = []
    while len(ids) < count:
        ids.append(next_token(prompt + ids, weights))
    return ids


async def _survive(folder: Path, kills: int) -> list[str]:
    """Generate while servers are killed; every answer must be that of the weights whose version it names."""
    said: list[str] = []
    engine, fleet = launched(folder, said)
    await engine.update_weights("w" * 5, 1)
    assert engine.context_length == 4096
    stopped = asyncio.Event()
    answered = 0

    async def ask(player: int) -> None:
        nonlocal answered
        turn = 0
        while not stopped.is_set():
            prompt = [player + 1, turn + 1, 3]
            turn += 1
            made = await engine.generate(ints(prompt), Sampling(20, stop_ids=(1,)))
            assert made.tokens.ids.tolist() == expected(prompt, 20, "w" * 5)
            assert made.tokens.version == 1
            answered += 1

    async def kill() -> None:
        for number in range(kills):
            url = list(fleet.processes)[number % len(fleet.processes)]
            before = fleet.processes[url]
            os.killpg(before.pid, signal.SIGKILL)
            while fleet.processes[url] is before:
                await asyncio.sleep(0.02)
            await fleet.wait()
        stopped.set()

    try:
        async with asyncio.TaskGroup() as group:
            for player in range(8):
                group.create_task(ask(player))
            group.create_task(kill())
        processes = list(fleet.processes.values())
        assert answered > kills
    finally:
        await engine.close()
    assert all(process.returncode is not None for process in processes)
    return said


@pytest.mark.gate
@pytest.mark.slow
def test_killed_servers_are_started_again_and_no_generation_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    said = asyncio.run(_survive(tmp_path, 2))
    assert sum("ended with code -9 and is started again" in line for line in said) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server-0.log", "server-1.log"]


def test_a_server_that_cannot_start_is_a_sentence(tmp_path: Path) -> None:
    async def run(command: list[str]) -> None:
        engine, _ = launched(tmp_path, [], [ServerCommand(tuple(command), "http://127.0.0.1:9", None)])
        try:
            await engine.update_weights("w", 1)
        finally:
            await engine.close()

    with pytest.raises(UsageError, match=r"cannot be started: no-such-program is not a program.* engine.launch.command"):
        asyncio.run(run(["no-such-program"]))
    with pytest.raises(InfrastructureError, match=r"ended 6 times at its start: see .*server-0.log"):
        asyncio.run(run(["false"]))


SHARED = 'devices = "4" puts a server on GPU 4, which is the learner'


@pytest.mark.parametrize(
    ("visible", "device", "launch", "devices"),
    [
        ("4, 5,GPU-c0ffee", "cuda", {}, ["5", "GPU-c0ffee"]),
        ("4, 5,GPU-c0ffee", "cuda", {"devices": ["0", "5"]}, ["0", "5"]),
        (None, "cuda", {}, ["1", "2"]),
        (None, "cuda:2", {"devices": ["0", "1"]}, ["0", "1"]),
        (None, "cpu", {}, [None, None]),
    ],
)
def test_servers_get_gpus_that_the_run_may_use_and_the_learner_does_not(
    visible: str | None, device: str, launch: dict[str, Any], devices: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [command.devices for command in commands_of(settings(device=device, launch=launch))] == devices


def test_a_gpu_of_the_learner_or_one_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5,GPU-c0ffee")
    shared = settings(device="cuda", launch={"devices": ["4", "5"]})
    for work in (shared.check_devices, lambda: first_model(shared, tmp_path), lambda: estimate(shared)):
        with pytest.raises(UsageError, match=SHARED):
            work()
    with pytest.raises(UsageError, match=r'has 3 GPUs, but the learner on "cuda:1" and 2 servers after it need 4.*devices'):
        commands_of(settings(device="cuda:1"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    shared.check_devices()
    with pytest.raises(msgspec.ValidationError, match="the GPUs of 1 servers, but there are 2 replicas"):
        settings(launch={"devices": ["1"]})
    with pytest.raises(msgspec.ValidationError, match=r'command needs a part "\{port\}"'):
        settings(launch={"command": ["vllm"]})


def test_the_default_commands_name_model_and_port() -> None:
    (first, second) = commands_of(settings(launch={"command": [], "arguments": ["--dtype", "float32"]}), "/models/m")
    assert first.arguments[:3] == ("vllm", "serve", "/models/m")
    assert " ".join(first.arguments[3:7]) == "--logprobs-mode processed_logprobs --generation-config vllm"
    assert first.arguments[-4:] == ("--port", first.url.rpartition(":")[2], "--dtype", "float32")
    assert first.url != second.url


def wait_for_ends(pids: list[int]) -> None:
    """Return when all of these processes have ended; the test's time limit ends the wait."""
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)


@pytest.mark.timeout(60)
def test_the_workers_of_a_server_end_with_it(tmp_path: Path) -> None:
    """A server that ends, and one that is stopped and does not wait for its worker."""
    pids = tmp_path / "pids"

    async def run(then: str) -> None:
        script = f"sleep 600 & echo $! >> {pids}; {then}"
        command = ServerCommand(("sh", "-c", script), "http://127.0.0.1:9", None)
        fleet = Fleet([command], tmp_path, patience=30.0, restarted=lambda _: None)
        starting = asyncio.create_task(fleet.start())
        while not starting.done() and not (pids.exists() and pids.read_text()):
            await asyncio.sleep(0.01)
        try:
            if then == "exit 3":
                with pytest.raises(InfrastructureError, match="ended 6 times"):
                    await starting
        finally:
            starting.cancel()
            await fleet.stop()

    for then, started in (("exit 3", 6), ("trap 'exit 0' TERM; while true; do sleep 0.05; done", 1)):
        asyncio.run(run(then))
        workers = [int(line) for line in pids.read_text().split()]
        assert len(workers) == started
        wait_for_ends(workers)
        pids.unlink()


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no signal for it")
@pytest.mark.timeout(60)
def test_a_server_ends_if_the_run_is_killed() -> None:
    run = """
import os, subprocess, sys
command = [str(os.getpid()) if part == "PARENT" else part for part in sys.argv[1:]]
print(subprocess.Popen(command, start_new_session=True).pid, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-I", "-c", run, *tied(["sh", "-c", "echo up; exec sleep 600"], "PARENT")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = {process.stdout.readline().strip(), process.stdout.readline().strip()}
        (pid,) = lines - {"up"}
        process.kill()
    wait_for_ends([int(pid)])


class Loading:
    """Stands for the servers and their engine: the first ``failures`` updates fail, and a server ends at ``ends`` of them."""

    context_length = 7

    def __init__(self, failures: int, ends: int, folder: Path, say: list[str]) -> None:
        self.failures, self.ends = failures, ends
        self.fleet = Fleet([], folder, say=say.append, patience=1.0, restarted=lambda _: None)
        self.replicas = [ServerReplica("http://127.0.0.1:9")]
        self.calls = 0

    async def update_weights(self, source: str, version: int) -> None:
        self.calls += 1
        self.fleet.ended += self.calls <= self.ends
        if self.calls <= self.failures:
            raise InfrastructureError(f"failure {self.calls}")

    async def sleep(self) -> None:
        await self.update_weights("", 0)

    async def revived(self) -> None:
        pass


@pytest.mark.parametrize("work", ["update", "sleep"])
@pytest.mark.parametrize(
    ("failures", "ends", "calls", "error"),
    [(1, 0, 1, "failure 1"), (2, 2, 3, None), (2, 1, 2, "failure 2"), (99, 99, 6, "failure 6")],
)
def test_weights_are_loaded_and_servers_sent_to_sleep_again_only_if_a_server_ended(
    work: str, failures: int, ends: int, calls: int, error: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launching, "_NOTICE", 0.05)
    said: list[str] = []
    loading = Loading(failures, ends, tmp_path, said)
    engine = LaunchedEngine(loading, loading, loading.fleet)  # type: ignore[arg-type]
    with pytest.raises(InfrastructureError, match=error) if error else nullcontext():
        asyncio.run(engine.update_weights("w", 1) if work == "update" else engine.sleep())
    assert loading.calls == calls
    assert len(said) == calls - 1


def test_servers_end_even_if_the_engine_cannot_be_closed_and_before_it(tmp_path: Path) -> None:
    closed: list[str] = []

    class Ending:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)
            raise InfrastructureError(self.name)

        stop = close

    with pytest.raises(InfrastructureError, match="engine"):
        asyncio.run(LaunchedEngine(Ending("engine"), Ending("servers"), Ending("fleet")).close())  # type: ignore[arg-type]
    assert closed == ["fleet", "engine"]
