"""Servers that a run starts and looks after: ``[engine.launch]`` in a recipe.

Each replica is a child process with a port of its own, on devices that the learner does not use. The run waits until all
answer, and says how far they are. A replica that ends is started again; until it answers and has the current weights, the
others sample. When the run ends, its servers end with all their workers, also if the run is killed: on Linux the kernel then
sends SIGTERM to each server. The output of each server is in ``servers/`` of the run folder.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import aiohttp

from palestra.core import EngineSession, Generation, Sampling
from palestra.errors import InfrastructureError, UsageError
from palestra.foundation.encoding import Ints
from palestra.foundation.resources.connections import free_port
from palestra.inference.servers.remote import RemoteEngine
from palestra.inference.servers.served import ServedEngine
from palestra.recipes.engine import EngineSettings, server_devices

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
_NOTICE = 5.0
"""Seconds after a failed call within which the end of the server's process explains the failure."""
_REPEATS = 5
"""How often an update of the weights, or a sleep, is tried again because servers ended meanwhile."""
_TIED = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # 1 is PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit("the run has ended")
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""A program that becomes the server. Code between fork and exec, in a process with threads, might not return."""


class ServerCommand(NamedTuple):
    """How one replica is started."""

    arguments: tuple[str, ...]
    url: str
    devices: str | None
    """``CUDA_VISIBLE_DEVICES`` of the process; ``None`` leaves it as it is."""


def server_commands(
    options: EngineSettings, model: str, learner_device: str = "cpu", adapter_rank: int = 0
) -> list[ServerCommand]:
    """Return the commands of the servers that ``options`` launch, each with a free port."""
    launch = options.launch
    if launch is None:
        return []
    rank = adapter_rank if options.transfer_name == "lora" else 0
    commands = []
    for devices in server_devices(learner_device, launch.replicas, launch.devices, shared=options.sleep):
        port = free_port("127.0.0.1")
        values = {"{model}": model, "{port}": str(port)}
        sleeping = ("--enable-sleep-mode",) if options.sleep and not launch.command else ()
        receiving = options.transfer_name == "collective" and options.name == "vllm" and not launch.command
        group = ("--weight-transfer-config", '{"backend": "nccl"}') if receiving else ()
        parts = (*launch.command_for(options.name, rank), *sleeping, *group, *launch.arguments)
        arguments = [values.get(part, part) for part in parts]
        commands.append(ServerCommand(tuple(arguments), f"http://127.0.0.1:{port}", devices))
    return commands


def tied(arguments: Sequence[str], parent: str) -> list[str]:
    """Return a command that runs ``arguments``. On Linux it gets SIGTERM when ``parent`` ends, the process that starts it."""
    return [sys.executable, "-I", "-S", "-c", _TIED, parent, *arguments]


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
        self._restarted = restarted
        self.say = say
        """Takes notes for the user."""
        self.patience = patience
        """Seconds that the servers have to answer."""
        self.ended = 0
        """How often a server has ended by itself."""
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
            self._watchers.append(asyncio.create_task(self._watch(command)))
        await self.wait()

    async def wait(self) -> None:
        """Wait until all servers answer."""
        began, noted = monotonic(), monotonic()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as session:
            while True:
                up = [command.url for command in self._commands if await _answers(session, command.url)]
                if len(up) == len(self._commands):
                    return
                self._raise_if_broken()
                waited = monotonic() - began
                if waited > self.patience:
                    late = ", ".join(command.url for command in self._commands if command.url not in up)
                    raise InfrastructureError(
                        f"{late} did not answer within {self.patience:.0f} s: see the logs in {self._folder}, or raise "
                        "engine.launch.patience"
                    )
                if monotonic() - noted >= _SAY_EVERY:
                    noted = monotonic()
                    self.say(f"{len(up)} of {len(self._commands)} servers are ready after {waited:.0f} s")
                await asyncio.sleep(_POLL)

    async def stop(self) -> None:
        """End all servers with their workers, and wait until they have ended."""
        running = [process for process in self.processes.values() if process.returncode is None]
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        try:
            for process in running:
                _signal(process, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*(process.wait() for process in running)), _GRACE)
        finally:
            for process in running:
                _signal(process, signal.SIGKILL)
        for process in running:
            await process.wait()

    async def has_ended(self, before: int) -> bool:
        """Whether ``ended`` is above ``before``, or soon is: a broken connection shows sooner than the end of the process."""
        until = monotonic() + _NOTICE
        while self.ended == before and monotonic() < until:  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(_POLL)
        return self.ended > before

    def _raise_if_broken(self) -> None:
        for watcher in self._watchers:
            if watcher.done() and not watcher.cancelled():
                watcher.result()

    async def _launch(self, command: ServerCommand) -> None:
        devices = {} if command.devices is None else {"CUDA_VISIBLE_DEVICES": command.devices}
        if shutil.which(command.arguments[0]) is None:
            raise UsageError(
                f"the server cannot be started: {command.arguments[0]} is not a program that can be executed. "
                "engine.launch.command names the program, for example that of another virtual environment"
            )
        with self._log(command).open("ab") as log:
            self.processes[command.url] = await asyncio.create_subprocess_exec(
                *tied(command.arguments, str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", **devices},
                start_new_session=True,  # Ctrl-C ends the run after its step, and the step needs the servers
            )

    def _log(self, command: ServerCommand) -> Path:
        return self._folder / f"server-{self._commands.index(command)}.log"

    async def _watch(self, command: ServerCommand) -> None:
        """Start the server again whenever it ends."""
        quick = 0
        while True:
            began = monotonic()
            process = self.processes[command.url]
            try:
                code = await process.wait()
            finally:
                if process.returncode is not None:
                    _signal(process, signal.SIGKILL)  # its workers would keep the memory of the GPU
            self.ended += 1
            quick = quick + 1 if monotonic() - began < _QUICK else 1
            if quick > _QUICK_DEATHS:
                raise InfrastructureError(f"{command.url} ended {quick} times at its start: see {self._log(command)}")
            self.say(f"{command.url} ended with code {code} and is started again ({self._log(command)})")
            self._restarted(command.url)
            await self._launch(command)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/health") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a server and to the workers that it has started: they share its process group.

    The group exists as long as one of them lives. So this also reaches the workers of a server that has just ended.
    """
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
        """Start the servers if this is the first call. If all of them end meanwhile, wait until they are back.

        Raises:
            InfrastructureError: The servers live and do not load the weights, they end at every try, or they do not come back.

        """
        if not self._started:
            self._started = True
            await self._fleet.start()
        loading = partial(self._engine.update_weights, source, version)
        await self._repeated(loading, f"version {version} of the weights is loaded again")
        self.context_length = self._engine.context_length

    async def _repeated(self, call: Callable[[], Awaitable[None]], again: str) -> None:
        """Make ``call`` when a server is healthy, and ``again`` whenever all servers end meanwhile."""
        for left in reversed(range(_REPEATS + 1)):
            if not any(replica.healthy for replica in self._servers.replicas):
                await self._recovered()
            before = self._fleet.ended
            try:
                await call()
                break
            except InfrastructureError as error:
                if not left or not await self._fleet.has_ended(before):
                    raise
                self._fleet.say(f"{again}, because servers ended: {error}")
                await self._recovered()

    async def _recovered(self) -> None:
        """Wait until all servers answer and one of them is healthy."""
        await self._fleet.wait()
        try:
            await asyncio.wait_for(self._servers.revived(), self._fleet.patience)
        except TimeoutError:
            raise InfrastructureError(
                f"no server has loaded the current weights within {self._fleet.patience:.0f} s: see the logs of the servers, "
                "or raise engine.launch.patience"
            ) from None

    async def sleep(self) -> None:
        """Make the servers sleep. If all of them end meanwhile, they sleep when they are back: only that frees their memory."""
        await self._repeated(self._engine.sleep, "the servers are sent to sleep again")

    async def pause(self) -> None:
        await self._engine.pause()

    async def resume(self) -> None:
        await self._engine.resume()

    async def close(self) -> None:
        try:
            await self._fleet.stop()  # first, so that no watcher uses a closed engine
        finally:
            await self._engine.close()
