"""Shells in containers of a Docker daemon, behind the interface of the shells in boxes.

A container runs one program of ours, the keeper, as the command of the image. The keeper ends when its standard input ends, and
``--rm`` then removes the container. So no container outlives this process, even if it is killed. The shells are started by
``docker exec``. The keeper kills their processes on order, and spares those that the image itself had started.

Docker's own limits hold: memory, processes, CPUs, and the size of one file, but not of all files. A container cannot be forked.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from palestra.errors import EnvError, InfrastructureError, Unsupported, UsageError
from palestra.sandbox.contract import Limits
from palestra.sandbox.docker_client import (
    client_environment,
    copy_out,
    docker,
    docker_program,
    fetch_out,
    is_folder_in,
    put_in,
    require_daemon,
)
from palestra.sandbox.docker_terminal import DockerTerminal
from palestra.sandbox.layers import NewFile
from palestra.sandbox.shell_session import Ruined, ShellSession

__all__ = ["CONTAINER_LABEL", "ContainerSettings", "DockerShell", "open_container"]

CONTAINER_LABEL = "palestra.shell"
"""The label of every container that is started here."""
_START_SECONDS = 60.0
_STOP_SECONDS, _LOOK_SECONDS = 5.0, 0.05
_LAST_WORDS = 500
_KEEPER = r"""
own=
look() {
  local text=
  { IFS= read -r -d '' text < "/proc/$1/stat"; } 2>/dev/null
  [ -n "$text" ] || return 1
  set -- "$1" ${text##*) }
  state=$2 parent=$3 key=$1:${21}
}
note() {
  own=
  for place in /proc/[0-9]*; do
    pid=${place#/proc/}
    look "$pid" && [[ $pid == 1 || $parent != 0 ]] && own+=" $key "
  done
}
sweep() {
  local found=1 tries=0
  while (( found && tries++ < 50 )); do
    found=0
    for place in /proc/[0-9]*; do
      look "${place#/proc/}" || continue
      [[ $state == Z || $own == *" $key "* || $1 == j && $parent == 0 ]] && continue
      found=1
      kill -9 "${place#/proc/}" 2>/dev/null
    done
  done
}
printf '\n%s\n' "$1"
while IFS= read -r -t $(( $2 > SECONDS ? $2 - SECONDS : 1 )) order; do
  case $order in
    n) note; printf '\n%s\n' "$1" ;;
    j|k) sweep "$order" ;;
  esac
done
"""
"""The keeper: only builtins of bash, so nothing that the agent replaces later changes it. Shells have a parent outside: 0."""
_AWAY = '[ -e "$1" ] || [ -L "$1" ] || exit 0; exec mv -- "$1" "$2"'


@dataclass(frozen=True, kw_only=True)
class ContainerSettings:
    """How a container is started."""

    limits: Limits
    cpus: float
    network: bool = False
    """Whether the container has Docker's default network, instead of none."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the image's own programs, beside those of the image."""
    session_seconds: float = 3600.0
    """The container ends after this time."""


class _Container:
    """One running container."""

    def __init__(self) -> None:
        self.name = f"palestra-{secrets.token_hex(8)}"
        self.ended = False
        self._word = secrets.token_hex(16)
        self._starting: asyncio.Task[None] | None = None
        self._client: asyncio.subprocess.Process | None = None
        self._answered = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []
        self._last = bytearray()
        self._own: set[int] = set()
        """The processes that the image had started before the agent began, by their numbers on the daemon's machine."""

    async def start(self, image: str, settings: ContainerSettings) -> None:
        """Start the container and wait for its keeper."""
        self._starting = asyncio.create_task(self._launch(image, settings))
        await asyncio.shield(self._starting)
        await self._answer("start")

    async def _launch(self, image: str, settings: ContainerSettings) -> None:
        keeper = ("bash", "-c", _KEEPER, "palestra", self._word, str(int(settings.session_seconds)))
        pipe = asyncio.subprocess.PIPE
        self._client = await asyncio.create_subprocess_exec(
            docker_program(), *run_words(self.name, settings), image, *keeper,
            stdin=pipe, stdout=pipe, stderr=pipe, env=client_environment(), start_new_session=True,
        )  # fmt: skip
        assert self._client.stdout is not None
        assert self._client.stderr is not None
        self._readers = [asyncio.create_task(self._read(stream)) for stream in (self._client.stdout, self._client.stderr)]

    async def note_own(self) -> None:
        """Note which processes the image has started. From now on, others belong to the agent."""
        self._answered.clear()
        self.order(b"n")
        try:
            await self._answer("answer")
        finally:
            self._answered.set()
        self._own = {pid for pid, _ in await asyncio.to_thread(self._processes)}

    async def _answer(self, doing: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await self._answered.wait()
        if not self._answered.is_set() or self.ended:
            assert self._client is not None
            words = self._last.decode(errors="replace").strip()[-_LAST_WORDS:]
            kind = EnvError if self._client.returncode in (126, 127) else InfrastructureError  # no bash in the image
            raise kind(f"a container did not {doing}: {words or 'the keeper did not answer'}")

    def order(self, word: bytes) -> None:
        """Send an order to the keeper."""
        if self._client is not None and self._client.stdin is not None and not self.ended:
            self._client.stdin.write(word + b"\n")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Read what the image prints, and keep its end: the keeper answers among it."""
        unfinished = b""
        while part := await stream.read(2**16):
            lines = (unfinished + part).split(b"\n")
            unfinished = lines[-1][-100:]
            if self._word.encode() in lines[:-1]:
                self._answered.set()
            self._last = (self._last + part)[-4 * _LAST_WORDS :]
        assert self._client is not None
        if stream is self._client.stdout:
            await self._client.wait()
            self.ended = True
            self._answered.set()

    def beside(self) -> list[str]:
        """Return the command lines of the processes of the agent, beside its shell."""
        return [words for pid, words in self._processes() if pid not in self._own]

    def _processes(self) -> list[tuple[int, str]]:
        """Return number and command line of all processes that have a parent in the container."""
        rows = [line.split(None, 3) for line in self._top().splitlines()[1:]]
        inside = {row[0] for row in rows}
        return [(int(row[0]), row[-1]) for row in rows if row[1] in inside and not row[2].startswith("Z")]

    def _top(self) -> str:
        return docker("top", self.name, "-eo", "pid,ppid,stat,args").decode(errors="replace")

    async def quiet(self) -> bool:
        """Wait until no process of the agent is left; return false if some do not end."""
        deadline = time.monotonic() + _STOP_SECONDS
        while not self.ended and time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # the daemon does not know it any more
                if not await asyncio.to_thread(self.beside):
                    return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    async def remove(self) -> None:
        """Remove the container with everything in it. A cancelled caller does not stop that."""
        await asyncio.shield(asyncio.create_task(self._removed()))

    async def _removed(self) -> None:
        """If the daemon is still making the container, wait for it: a client that is killed then leaves one behind."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._client is not None and self._client.stdin is not None:
            self._client.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS if self._client else 0.0):
                await self._answered.wait()
        await asyncio.to_thread(_remove, self.name)
        if self._client is not None:
            if self._client.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self._client.kill()
            await self._client.wait()
        for reader in self._readers:
            reader.cancel()


def _remove(name: str) -> None:
    """Remove a container, and wait until the daemon does not know it any more: it may be removing it already."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            docker("rm", "--force", "--volumes", name)
        try:
            if not docker("ps", "--all", "--quiet", "--filter", f"name=^/?{name}$").strip():
                return
        except OSError:  # no daemon, no container: the keeper has ended with its input
            return
        time.sleep(_LOOK_SECONDS)


def run_words(name: str, settings: ContainerSettings) -> list[str]:
    """Return the words of ``docker run`` before the image."""
    limits = settings.limits
    return [
        *("run", "--rm", "--interactive", "--name", name, "--label", CONTAINER_LABEL, "--hostname", "box", "--user", "0"),
        *("--pull", "never", "--log-driver", "none", "--no-healthcheck", "--cap-drop", "MKNOD", "--cap-drop", "NET_RAW"),
        *([] if settings.network else ["--network", "none"]),
        *("--memory", str(limits.total_memory), "--memory-swap", str(limits.total_memory), "--cpus", f"{settings.cpus:g}"),
        *("--pids-limit", str(limits.processes), "--ulimit", f"nofile={limits.open_files}", "--ulimit", "core=0"),
        *("--ulimit", f"fsize={limits.file_bytes}"),
        *(word for name, value in settings.variables.items() for word in ("--env", f"{name}={value}")),
    ]


async def open_container(image: str, settings: ContainerSettings) -> "DockerShell":
    """Start a container of an image that the daemon has, and open a shell in it.

    Raises:
        EnvError: The image cannot run bash.
        InfrastructureError: The daemon could not start the container.
    """
    container = _Container()
    try:
        await container.start(image, settings)
        return await _opened(container, settings.limits)
    except BaseException:
        await container.remove()
        raise


async def _opened(container: _Container, limits: Limits) -> "DockerShell":
    terminal = DockerTerminal(container.name, limits, container.order)
    try:
        await terminal.start()
    except BaseException:
        terminal.free()
        raise
    return DockerShell(container, terminal, limits)


class DockerShell(ShellSession):
    """One session in a container."""

    def __init__(self, container: _Container, terminal: DockerTerminal, limits: Limits) -> None:
        super().__init__(terminal, limits)
        self._container = container

    async def begin_episode(self) -> None:
        """Let every process that runs now belong to the image. Call it before the agent's first command."""
        await self._container.note_own()

    async def fork(self) -> "DockerShell":
        raise Unsupported("a container cannot be forked: play the task in a box, or without fork()")

    def put(self, files: Sequence[NewFile]) -> None:
        try:
            put_in(self._container.name, files)
        except OSError as error:
            raise InfrastructureError(f"writing the files of a task failed: {error}") from error

    def fetch(self, path: str) -> bytes:
        return fetch_out(self._container.name, path, self.limits.file_bytes)

    def copy_of(self, path: str) -> list[NewFile]:
        return copy_out(self._container.name, path, self.limits.disk_bytes)

    def move_away(self, path: str) -> None:
        above, _, name = path.rpartition("/")
        aside = f"{above}/.{name}-{secrets.token_hex(8)}".lstrip("/")
        moved = ("/bin/sh", "-c", _AWAY, "sh", f"/{path}", f"/{aside}")
        docker("exec", "--user", "0", "--workdir", "/", self._container.name, *moved)

    def is_folder(self, path: str) -> bool:
        return is_folder_in(self._container.name, path)

    def beside(self) -> list[str]:
        try:
            return self._container.beside()
        except OSError:
            return []  # the container has ended: stop() says so

    async def stop(self) -> None:
        self.alive = self.running = False
        self._terminal.kill()
        await asyncio.shield(self._terminal.exited)
        if await self._container.quiet():
            return
        try:
            await asyncio.to_thread(require_daemon)
        except UsageError as error:
            raise InfrastructureError(f"a container was lost: {error}") from None
        raise Ruined("the agent has ended its container, or keeps processes in it from ending")

    async def renewed(self) -> "DockerShell":
        await self.stop()
        fresh = await _opened(self._container, self.limits)  # it reads no file of the agent: --norc
        self._terminal.free()
        return fresh

    async def close(self) -> None:
        self.alive = False
        self._terminal.free()
        await self._container.remove()
