"""Boxes by container runtimes: ``Docker`` and ``Runsc`` (gVisor), behind the same interface.

Both start a container per job, which takes some hundred milliseconds, and keep none warm. Use them where bubblewrap is not
allowed, or for stronger isolation. They cannot judge code, because that needs a channel of its own.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from palestra.errors import InfrastructureError, MissingExtra, Unsupported, UsageError
from palestra.sandbox.contract import (
    Begun,
    KilledBy,
    Limits,
    Outcome,
    Program,
    ResourceUsage,
    Sandbox,
    SandboxSession,
    TestLine,
    check_relative,
)
from palestra.sandbox.jobs import file_fields, job_of, pack_frame
from palestra.sandbox.profile import sources

__all__ = ["Docker", "Runsc"]

_START_SECONDS = 60.0
_LAST_SECONDS = 5.0
"""Seconds that a client may take to notice that its container has ended."""


_START = """\
import sys
for name, source in {modules}:
    module = sys.modules[name] = type(sys)(name)
    exec(compile(source, name, "exec"), module.__dict__)
for name in {names}: del sys.modules[name]
module.main({ready}, {mark})
"""


def _client_environment() -> dict[str, str]:
    """Return the variables with which the runtime's client finds its daemon, and no others: they may be secrets."""
    kept = {"PATH", "HOME", "XDG_RUNTIME_DIR"}
    return {name: value for name, value in os.environ.items() if name in kept or name.startswith(("DOCKER_", "CONTAINER_"))}


class _Container:
    """One started container and its output."""

    def __init__(self, limits: Limits, name: str, stop: Sequence[str]) -> None:
        self._limits = limits
        self.name = name
        self._stop = stop
        self.mark, self._ready = (secrets.token_hex(16).encode() for _ in range(2))
        self._process: asyncio.subprocess.Process | None = None
        self._out, self._err = bytearray(), bytearray()
        self._total = 0
        self._changed = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []
        self.killed_by: KilledBy | None = None
        self.ended = False

    async def start(self, command: Sequence[str]) -> None:
        modules = sources("container")
        start = _START.format(modules=modules, names=[name for name, _ in modules], ready=self._ready, mark=self.mark)
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *command, "-c", start, stdin=pipe, stdout=pipe, stderr=pipe, env=_client_environment()
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        streams = ((self._process.stdout, self._out), (self._process.stderr, self._err))
        self._readers = [asyncio.create_task(self._read(stream, kept)) for stream, kept in streams]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await self._until(lambda: self._out.startswith(self._ready))
        if not self._out.startswith(self._ready):
            raise InfrastructureError(f"a container did not start: {self._err.decode(errors='replace').strip()[-500:]}")
        del self._out[: len(self._ready)]

    async def send(self, payload: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(pack_frame(payload))
            await self._process.stdin.drain()

    async def answer(self, wall_seconds: float) -> bytes | None:
        """Return the runner's answer; ``None`` if the container ended or was killed."""
        try:
            async with asyncio.timeout(wall_seconds):
                await self._until(lambda: self._marked() is not None)
        except TimeoutError:
            await self.kill(KilledBy.WALL_CLOCK)
        marked = self._marked()
        if marked is None:
            return None
        at, answer = marked
        del self._out[at:]
        return answer

    def _marked(self) -> tuple[int, bytes] | None:
        at = self._out.rfind(self.mark)
        body = at + len(self.mark) + 4
        if at == -1 or len(self._out) < body:
            return None
        size = int.from_bytes(self._out[body - 4 : body], "big")
        return (at, bytes(self._out[body : body + size])) if len(self._out) >= body + size else None

    def cut(self) -> tuple[bytes, bytes, int]:
        """Return the output kept since the last call, and the number of dropped bytes."""
        kept = self._limits.kept_output
        out, err = bytes(self._out), bytes(self._err)
        self._out.clear()
        self._err.clear()
        self._total = 0
        return out[:kept], err[:kept], max(0, len(out) - kept) + max(0, len(err) - kept)

    async def kill(self, reason: KilledBy) -> None:
        """Stop the container and its client."""
        self.killed_by = self.killed_by or reason
        if self._process is None:
            return
        if self._stop and self._process.returncode is None:
            nothing = asyncio.subprocess.DEVNULL
            stopping = await asyncio.create_subprocess_exec(
                *self._stop, self.name, stdout=nothing, stderr=nothing, env=_client_environment()
            )
            await stopping.wait()
        await self.close()

    async def close(self) -> int:
        """End the client and return its exit code. Wait for a client that has closed its output: it is about to end."""
        assert self._process is not None
        if self.ended:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _LAST_SECONDS)
        if self._process.returncode is None:
            self._process.kill()
        code = await self._process.wait()
        await asyncio.wait(self._readers, timeout=1.0)
        for reader in self._readers:
            reader.cancel()
        return code

    async def _until(self, holds: "Callable[[], bool]") -> None:
        while not holds() and not self.ended and self.killed_by is None:
            self._changed.clear()
            await self._changed.wait()

    async def _read(self, stream: asyncio.StreamReader, kept: bytearray) -> None:
        while part := await stream.read(2**16):
            if self.killed_by is KilledBy.OUTPUT:
                continue  # keep reading, so that the program can end
            self._total += len(part)
            kept += part
            self._changed.set()
            if self._total > self._limits.output + 2**24 or (self._total > self._limits.output and self._marked() is None):
                self.killed_by = self.killed_by or KilledBy.OUTPUT
        if stream is (self._process.stdout if self._process else None):
            self.ended = True
        self._changed.set()


class _Containers(Sandbox):
    """A provider that starts a container for every job."""

    program: str
    remedy: str

    def __init__(self, limits: Limits | None = None, *, concurrency: int = 8) -> None:
        if shutil.which(self.program) is None:
            raise MissingExtra(f"this sandbox needs {self.program}, which is not installed: {self.remedy}")
        self.limits = limits or Limits()
        self._slots = asyncio.Semaphore(concurrency)

    @abstractmethod
    def command(self, name: str) -> list[str]:
        """Return the command that starts the interpreter in a container called ``name``."""

    @abstractmethod
    def stop(self) -> list[str]:
        """Return the command that, followed by its name, stops a container; nothing if killing the client is enough."""

    async def run(self, program: Program, *, begun: Begun | None = None) -> Outcome:
        async with self._slots:
            container = await self._started()
            if begun is not None:
                begun()
            began = time.monotonic()
            try:
                await container.send(job_of(program, "\0".join(program.wanted).encode()))
                answer = await container.answer(program.wall_seconds or self.limits.wall_seconds)
            finally:
                await container.kill(KilledBy.CANCELLED)
            out, err, dropped = container.cut()
            usage = ResourceUsage(time.monotonic() - began)
            if not answer:
                return Outcome(out, err, None, container.killed_by, dropped, {}, usage)
            return Outcome(out, err, answer[0], None, dropped, _files(program.wanted, answer[1:]), usage)

    async def open_session(self, files: Mapping[str, bytes] | None = None) -> SandboxSession:
        fields = file_fields(files or {})
        container = await self._started()
        try:
            await container.send(b"S" + fields)
        except BaseException:
            await container.kill(KilledBy.CANCELLED)
            raise
        return _ContainerSession(self, container)

    async def open_tests(self, kind: bytes, fields: Sequence[bytes]) -> TestLine:
        raise Unsupported(f"the {self.name} sandbox cannot judge code: use bubblewrap")

    async def close(self) -> None:
        """Do nothing: no container outlives its job."""

    async def _started(self) -> _Container:
        name = f"palestra-{secrets.token_hex(8)}"
        container = _Container(self.limits, name, self.stop())
        try:
            await container.start(self.command(name))
        except BaseException:
            await container.kill(KilledBy.CANCELLED)
            raise
        return container


class _ContainerSession(SandboxSession):
    """An interpreter in a container."""

    def __init__(self, owner: _Containers, container: _Container) -> None:
        self._owner = owner
        self._container = container
        self._alive = True

    @property
    def alive(self) -> bool:
        return self._alive and not self._container.ended

    async def run(self, code: str, *, wall_seconds: float | None = None, begun: Begun | None = None) -> Outcome:
        began = time.monotonic()
        answer = await self._ask(b"c" + code.encode(errors="replace"), wall_seconds, begun)
        exit_code: int | None = 0 if answer == b"1" else 1
        if answer is None:
            self._alive = False
            code_of_end = await self._container.close()
            exit_code = None if self._container.killed_by else code_of_end
        out, err, dropped = self._container.cut()
        return Outcome(out, err, exit_code, self._container.killed_by, dropped, {}, ResourceUsage(time.monotonic() - began))

    async def put(self, files: Mapping[str, bytes]) -> None:
        if await self._ask(b"f" + file_fields(files), None) != b"1":
            raise OSError("the files could not be written")

    async def fetch(self, path: str) -> bytes:
        check_relative(path)
        answer = await self._ask(b"g" + path.encode(), None)
        if not answer or answer[:1] != b"1":
            raise FileNotFoundError(path)
        return answer[1:]

    async def close(self) -> None:
        self._alive = False
        await self._container.kill(KilledBy.CANCELLED)

    async def _ask(self, request: bytes, wall_seconds: float | None, begun: Begun | None = None) -> bytes | None:
        if not self._alive:
            raise UsageError("this session has ended; open another one")
        async with self._owner._slots:
            if begun is not None:
                begun()
            await self._container.send(request)
            return await self._container.answer(wall_seconds or self._owner.limits.wall_seconds)


class Docker(_Containers):
    """Containers of a Docker daemon, or of Podman, which takes the same arguments."""

    name = "docker"
    remedy = "install Docker or Podman, or use bubblewrap"

    def __init__(
        self, image: str = "python:3.11-slim", limits: Limits | None = None, *, program: str = "docker", concurrency: int = 8
    ) -> None:
        self.program = program
        self.image = image
        super().__init__(limits, concurrency=concurrency)

    def command(self, name: str) -> list[str]:
        limits = self.limits
        return [
            *(self.program, "run", "--rm", "--interactive", "--name", name, "--network", "none", "--read-only", "--init"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534", "--ipc", "none"),
            *("--memory", str(limits.total_memory), "--memory-swap", str(limits.total_memory), "--cpus", "1"),
            *("--pids-limit", str(limits.processes), "--ulimit", f"nofile={limits.open_files}", "--ulimit", "core=0"),
            *("--ulimit", f"fsize={limits.file_bytes}", "--ulimit", f"cpu={limits.session_cpu_seconds}"),
            *("--tmpfs", f"/work:rw,uid=65534,gid=65534,mode=700,size={limits.disk_bytes},nr_inodes={limits.files}"),
            *("--tmpfs", f"/tmp:rw,uid=65534,gid=65534,mode=700,size={limits.shared_memory},nr_inodes={limits.files}"),  # noqa: S108 - in the box
            *("--workdir", "/work", "--env", "PYTHONHASHSEED=0", self.image, "python3", "-sSB"),
        ]

    def stop(self) -> list[str]:
        return [self.program, "kill"]


class Runsc(_Containers):
    """gVisor without a daemon: ``runsc do`` on this machine's files, read-only, in a user-space kernel."""

    name = "runsc"
    program = "runsc"
    remedy = "see gvisor.dev for its package, or use bubblewrap"

    def command(self, name: str) -> list[str]:
        limits = (f"ulimit -v {self.limits.process_memory // 1024}", f"ulimit -n {self.limits.open_files}", "ulimit -c 0")
        script = f'{"; ".join(limits)}; cd "$(mktemp -d)" && exec "$@"'
        wall = [self.program, "--rootless", "--network=none", "--ignore-cgroups", "do", "--quiet"]
        return [*wall, "/bin/sh", "-c", script, name, "/usr/bin/python3", "-sSB"]

    def stop(self) -> list[str]:
        return []


def _files(wanted: Sequence[str], packed: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    at = 0
    for path in wanted:
        size = int.from_bytes(packed[at : at + 4], "big")
        item = packed[at + 4 : at + 4 + size]
        at += 4 + size
        if item[:1] == b"1":
            files[path] = item[1:]
    return files
