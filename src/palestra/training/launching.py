"""Servers that a run starts and looks after: ``[engine.launch]`` in a recipe.

Each replica is a child process with a port of its own, on devices that the learner does not use. The run waits until all
answer, and says how far they are. A replica that ends is started again; until it answers and has the current weights, the
others sample. When the run ends, its servers end. The output of each server is in ``servers/`` of the run folder.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import aiohttp

from palestra.core import EngineSession, Generation, Sampling
from palestra.encoding import Ints
from palestra.engines.remote import RemoteEngine
from palestra.errors import InfrastructureError, UsageError
from palestra.training.config import TrainConfig
from palestra.training.served import ServedEngine

__all__ = ["SERVERS", "Fleet", "LaunchedEngine", "ServerCommand", "server_commands"]

SERVERS = "servers"
"""The folder of the servers' output in the run folder."""
_POLL, _SAY_EVERY = 0.2, 15.0
_QUICK = 20.0
"""A server that lives for fewer seconds than this has failed to start."""
_QUICK_DEATHS = 5
"""Failures to start, one after another, after which the run ends."""
_GRACE = 15.0
"""Seconds that a server has to end after SIGTERM."""


class ServerCommand(NamedTuple):
    """How one replica is started."""

    arguments: tuple[str, ...]
    url: str
    devices: str | None
    """``CUDA_VISIBLE_DEVICES`` of the process; ``None`` leaves it as it is."""


def server_commands(config: TrainConfig, model: str) -> list[ServerCommand]:
    """Return the commands of the replicas, each with a free port."""
    launch = config.engine.launch
    assert launch is not None
    commands = []
    for devices in config.server_devices:
        port = _free_port()
        values = {"{model}": model, "{port}": str(port)}
        arguments = [values.get(part, part) for part in (*launch.command_for(config.engine.name), *launch.arguments)]
        commands.append(ServerCommand(tuple(arguments), f"http://127.0.0.1:{port}", devices))
    return commands


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Fleet:
    """The servers of a run, as child processes."""

    def __init__(
        self,
        commands: Sequence[ServerCommand],
        folder: Path,
        *,
        patience: float,
        restarted: Callable[[str], None],
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``restarted`` is called with the address of a server that has ended, before it is started again."""
        self._commands = commands
        self._folder = folder
        self._patience = patience
        self._restarted = restarted
        self._say = say
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        """The running process of every address."""
        self._watchers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all servers and wait until they answer.

        Raises:
            UsageError: The command does not exist.
            InfrastructureError: A server ended again and again, or did not answer in time. The message names its log.

        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for command in self._commands:
            await self._launch(command)
        self._watchers = [asyncio.create_task(self._watch(command)) for command in self._commands]
        await self.wait()

    async def wait(self) -> None:
        """Wait until all servers answer."""
        began, said = monotonic(), monotonic()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as session:
            while True:
                up = [command.url for command in self._commands if await _answers(session, command.url)]
                if len(up) == len(self._commands):
                    return
                self._raise_if_broken()
                waited = monotonic() - began
                if waited > self._patience:
                    late = ", ".join(command.url for command in self._commands if command.url not in up)
                    raise InfrastructureError(
                        f"{late} did not answer within {self._patience:.0f} s: see the logs in {self._folder}, or raise "
                        "engine.launch.patience"
                    )
                if monotonic() - said >= _SAY_EVERY:
                    said = monotonic()
                    self._say(f"{len(up)} of {len(self._commands)} servers are ready after {waited:.0f} s")
                await asyncio.sleep(_POLL)

    async def stop(self) -> None:
        """End all servers, and wait until they have ended."""
        for watcher in self._watchers:
            watcher.cancel()
        for process in self.processes.values():
            _signal(process, signal.SIGTERM)
        for process in self.processes.values():
            try:
                await asyncio.wait_for(process.wait(), _GRACE)
            except TimeoutError:
                _signal(process, signal.SIGKILL)
                await process.wait()

    def _raise_if_broken(self) -> None:
        for watcher in self._watchers:
            if watcher.done() and not watcher.cancelled():
                watcher.result()

    async def _launch(self, command: ServerCommand) -> None:
        own = {} if command.devices is None else {"CUDA_VISIBLE_DEVICES": command.devices}
        with self._log(command).open("ab") as log:
            try:
                self.processes[command.url] = await asyncio.create_subprocess_exec(
                    *command.arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", **own},
                    start_new_session=True,  # Ctrl-C ends the run after its step, and the step needs the servers
                )
            except OSError as error:
                raise UsageError(
                    f"the server cannot be started: {command.arguments[0]}: {error.strerror}. engine.launch.command names the "
                    "program, for example that of another virtual environment"
                ) from None

    def _log(self, command: ServerCommand) -> Path:
        return self._folder / f"server-{self._commands.index(command)}.log"

    async def _watch(self, command: ServerCommand) -> None:
        """Start the server again whenever it ends."""
        quick = 0
        while True:
            began = monotonic()
            code = await self.processes[command.url].wait()
            quick = quick + 1 if monotonic() - began < _QUICK else 1
            if quick > _QUICK_DEATHS:
                raise InfrastructureError(f"{command.url} ended {quick} times at its start: see {self._log(command)}")
            self._say(f"{command.url} ended with code {code} and is started again ({self._log(command)})")
            self._restarted(command.url)
            await self._launch(command)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/health") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a server and to the workers that it has started: they share its process group."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


class LaunchedEngine:
    """An engine whose servers the run starts: a ``ServedEngine`` with its ``Fleet``."""

    def __init__(self, engine: ServedEngine, servers: RemoteEngine, fleet: Fleet) -> None:
        self._engine = engine
        self._servers = servers
        self._fleet = fleet
        self._started = False
        self.context_length = 0
        """0 until the servers have been asked. The first ``update_weights`` asks them."""

    @property
    def version(self) -> int:
        """The version of the weights that the servers have."""
        return self._engine.version

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        return await self._engine.generate(prompt, sampling, session)

    async def update_weights(self, source: Any, version: int) -> None:
        """Start the servers if this is the first call. If all of them end meanwhile, wait until they are back."""
        if not self._started:
            self._started = True
            await self._fleet.start()
        while True:
            try:
                await self._engine.update_weights(source, version)
                self.context_length = self._engine.context_length
                return
            except InfrastructureError:
                await self._fleet.wait()
                await self._servers.revived()

    async def pause(self) -> None:
        await self._engine.pause()

    async def resume(self) -> None:
        await self._engine.resume()

    async def close(self) -> None:
        await self._engine.close()
        await self._fleet.stop()
