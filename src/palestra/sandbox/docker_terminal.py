"""The terminal of a shell in a container: the client of ``docker exec`` on a terminal of ours.

The daemon gives the shell a terminal of its own, whose modes this process cannot change. So the shell itself restores them
after each command. Commands are typed as quoted text in short lines, because a line of a terminal is cut after 4,095 bytes.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import shlex
import struct
import termios
import tty
from collections.abc import Callable

from palestra.errors import InfrastructureError
from palestra.sandbox.box import Exit
from palestra.sandbox.contract import Limits
from palestra.sandbox.docker_client import client_environment, docker_program
from palestra.sandbox.shell_profile import ENVIRONMENT
from palestra.sandbox.shell_terminal import COLUMNS, ROWS, ShellTerminal, mark_of

__all__ = ["DockerTerminal"]

_START_SECONDS = 60.0
_END_SECONDS = 5.0
_LINE = 1000
"""Bytes of a command per typed line. Quoting makes four of one at most."""
_DETACH = "ctrl-@,ctrl-@,ctrl-@,ctrl-@"
"""Keys by which the client would leave the shell: NUL bytes, which are never sent."""
_BASH = ("bash", "--noprofile", "--norc", "--noediting", "-i")
_OF_IMAGE = ("PATH", "LANG", "LC_ALL")
"""Variables that an image sets for its own programs and locales."""
_PLAIN = frozenset(range(32, 127)) - frozenset(b"'\\")
_STARTUP = (
    "stty sane -echo 2>/dev/null; set +o history +H; unset HISTFILE; PS1= PS2=; export -n PS1 PROMPT_COMMAND __number; "
    '__mark=$PROMPT_COMMAND; __restore() {{ return "$1"; }}; ulimit -S -H -n {files} 2>/dev/null; '
    'echo 1000 2>/dev/null > /proc/self/oom_score_adj; cd "$HOME"; __number={number}\n'
)
"""The first typed line. If memory runs out, the kernel kills what the shell has started before what the image has."""
_TRIGGER = (
    '__number={number}; __restore $__status; eval "$__command"; __status=$?; PROMPT_COMMAND=$__mark; '
    "stty sane -echo 2>/dev/null; __restore $__status\n"
)


class DockerTerminal(ShellTerminal):
    """One shell of root in a container.

    Args:
        container: Its name.
        limits: What the shell may use.
        order: Sends ``j`` (kill the jobs) or ``k`` (kill the shells, too) to the container's first process.
    """

    def __init__(self, container: str, limits: Limits, order: Callable[[bytes], None]) -> None:
        self._word = secrets.token_hex(8)
        super().__init__(self._word, limits)
        self._container = container
        self._order = order
        self._typed = bytearray()
        """Keys that the terminal has not taken yet."""
        self._client: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the shell, and wait for its prompt."""
        own = {name: value for name, value in ENVIRONMENT.items() if name not in _OF_IMAGE}
        variables = {**own, **self._variables(), "HOME": "/root"}
        given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        how = ("--interactive", "--tty", "--user", "0", "--workdir", "/", "--detach-keys", _DETACH)  # the image's may be gone
        words = ["exec", *how, *given, self._container, *_BASH]
        self.master, slave = os.openpty()
        try:
            os.set_blocking(self.master, False)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            tty.setraw(slave)
            self._client = await asyncio.create_subprocess_exec(
                docker_program(), *words, stdin=slave, stdout=slave, stderr=slave, env=client_environment(),
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(slave)
        self._watching = asyncio.create_task(self._watch(self._client))
        asyncio.get_running_loop().add_reader(self.master, self.take)
        await self._prompted()
        self.type(_STARTUP.format(files=self._limits.open_files, number=self._next_command()).encode())
        await self._prompted()

    def _variables(self) -> dict[str, str]:
        """Return the variables that make a shell print marks. Its startup line keeps them from its children."""
        mark = mark_of(self._word).replace("\x1b", r"\e")
        return {"PS1": "", "__number": "0", "PROMPT_COMMAND": f'printf "{mark}%s;%d\\a" "$__number" "$?"'}

    async def _prompted(self) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                code = await asyncio.shield(self.prompt)
        except TimeoutError:
            raise InfrastructureError(f"a shell in a container did not start within {_START_SECONDS:.0f} s") from None
        if code is None:
            words = bytes(self.data).decode(errors="replace").strip()[-500:]
            raise InfrastructureError(f"a shell in a container ended while it started: {words}")

    async def _watch(self, client: asyncio.subprocess.Process) -> None:
        code = await client.wait()
        if not self.exited.done():
            self.exited.set_result(Exit(code, None, 0.0, 0))

    def begin(self, command: bytes) -> None:
        number = self._next_command()
        parts = [_quoted(command[place : place + _LINE]) for place in range(0, len(command), _LINE)] or ["''"]
        lines = [f"__status=$? __command={parts[0]}\n", *(f"__command+={part}\n" for part in parts[1:])]
        self.type("".join([*lines, _TRIGGER.format(number=number)]).encode())

    def become(self, words: str, home: str) -> None:
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in {**self._variables(), "HOME": home}.items())
        startup = _STARTUP.format(files=self._limits.open_files, number=self._next_command())
        self.type(f"exec {words} env {given} {shlex.join(_BASH)}\n{startup}".encode())

    def type(self, keys: bytes) -> None:
        """Send keys as fast as the terminal takes them."""
        self._typed += keys.replace(b"\0", b"")
        self._write()

    def _write(self) -> None:
        if self.master < 0:
            return
        loop = asyncio.get_running_loop()
        try:
            del self._typed[: os.write(self.master, self._typed)]
        except BlockingIOError:
            pass
        except OSError:  # the shell has ended: the reader reports it
            self._typed.clear()
        if self._typed:
            loop.add_writer(self.master, self._write)
        else:
            loop.remove_writer(self.master)

    def replaced(self) -> bool:
        """Return false: a program that has replaced the shell looks like a command that still runs."""
        return False

    def remember_shell(self) -> None:
        """Do nothing: ``replaced`` compares nothing."""

    def kill_jobs(self) -> None:
        self._order(b"j")

    def kill(self) -> None:
        self._order(b"k")
        if self._client is not None and not self.exited.done():  # the container may not answer
            asyncio.get_running_loop().call_later(_END_SECONDS, self._kill_client)

    def _kill_client(self) -> None:
        if self._client is not None and self._client.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._client.kill()

    def free(self) -> None:
        master, self.master = self.master, -1
        if master < 0:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(master)
        loop.remove_writer(master)
        self._settle(None)
        self._kill_client()
        os.close(master)


def _quoted(part: bytes) -> str:
    """Return ``part`` as one word of bash, in characters that no terminal changes."""
    return "$'" + "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in part) + "'"
