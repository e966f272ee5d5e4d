"""Servers that the run starts: started, awaited, killed, restarted, stopped; and no generation is lost or wrong."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engines.servers import next_token

from palestra.core import Sampling
from palestra.encoding import ints
from palestra.engines.vllm import VLLMEngine
from palestra.errors import InfrastructureError, UsageError
from palestra.training import launching
from palestra.training.config import TrainConfig
from palestra.training.launching import Fleet, LaunchedEngine, ServerCommand, server_commands

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

STUB = [sys.executable, "-m", "tests.engines.stub_server", "{port}"]
ROOT = Path(__file__).parents[2]


def settings(**changes: Any) -> TrainConfig:
    launch = {"command": STUB, "replicas": 2, **changes.pop("launch", {})}
    data = {"model": {"path": "m", **changes}, "envs": {"game:x": 1.0}, "steps": 1}
    return msgspec.convert({**data, "engine": {"kind": "vllm", "launch": launch}}, TrainConfig)


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
    commands = commands or server_commands(settings(), "m")
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


@pytest.mark.slow
def test_killed_servers_are_started_again_and_no_generation_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    said = asyncio.run(_survive(tmp_path, 2))
    assert sum("ended with code -9 and is started again" in line for line in said) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server-0.log", "server-1.log"]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_fifty_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(launching, "_QUICK", 0.0)
    assert len([line for line in asyncio.run(_survive(tmp_path, 50)) if "-9" in line]) == 50


def test_a_server_that_cannot_start_is_a_sentence(tmp_path: Path) -> None:
    async def run(command: list[str]) -> None:
        engine, _ = launched(tmp_path, [], [ServerCommand(tuple(command), "http://127.0.0.1:9", None)])
        try:
            await engine.update_weights("w", 1)
        finally:
            await engine.close()

    with pytest.raises(UsageError, match=r"cannot be started: no-such-program: No such file.* engine.launch.command"):
        asyncio.run(run(["no-such-program"]))
    with pytest.raises(InfrastructureError, match=r"ended 6 times at its start: see .*server-0.log"):
        asyncio.run(run(["false"]))


def test_servers_and_learner_do_not_share_a_gpu() -> None:
    assert settings(device="cuda").server_devices == ["1", "2"]
    assert settings(device="cuda:2", launch={"devices": ["0", "1"]}).server_devices == ["0", "1"]
    assert settings().server_devices == [None, None]
    with pytest.raises(msgspec.ValidationError, match='devices = "0,1" puts a server on GPU 0, which is the learner'):
        settings(device="cuda", launch={"devices": ["0,1", "2"]})
    with pytest.raises(msgspec.ValidationError, match="the GPUs of 1 servers, but there are 2 replicas"):
        settings(launch={"devices": ["1"]})
    with pytest.raises(msgspec.ValidationError, match=r'command needs a part "\{port\}"'):
        settings(launch={"command": ["vllm"]})


def test_the_default_commands_name_model_and_port() -> None:
    (first, second) = server_commands(settings(launch={"command": [], "arguments": ["--dtype", "float32"]}), "/models/m")
    assert first.arguments[:3] == ("vllm", "serve", "/models/m")
    assert first.arguments[-4:] == ("--port", first.url.rpartition(":")[2], "--dtype", "float32")
    assert first.url != second.url
