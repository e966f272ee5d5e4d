"""The processes that a launcher of shells keeps ready for the next boxes."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator

import pytest

pytest.importorskip("pyseccomp")

from palestra.sandbox.launcher import Launcher
from palestra.sandbox.procfs import children_of
from palestra.sandbox.shell import Shell, Shells
from palestra.sandbox.shell_launcher import SPARES, ShellLauncher, _Spare

SECONDS = 20.0


async def spares_of(shells: Shells, shell: Shell) -> set[int]:
    """The spare processes, while ``shell`` is the only session."""
    process = shells._pool._process
    assert process is not None
    async with asyncio.timeout(SECONDS):
        while len(found := set(children_of(process.pid)) - {shell._box.outer}) < SPARES:
            await asyncio.sleep(0.01)
    return found


def folders_held_by(pid: int) -> list[str]:
    held = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    return [os.readlink(path) for path in held if os.path.exists(path) and stat.S_ISDIR(os.stat(path).st_mode)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at the descriptors of a process in another namespace")
async def test_a_spare_process_holds_no_layer_of_a_box() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        spares = await spares_of(shells, shell)
        async with asyncio.timeout(SECONDS):
            while any(folders_held_by(spare) for spare in spares):
                await asyncio.sleep(0.01)


def sockets_of(pid: int) -> set[str]:
    held = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    return {name for name in held if name.startswith("socket:")}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at the descriptors of a process in another namespace")
async def test_a_spare_process_holds_no_channel_of_another() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        one, other = await spares_of(shells, shell)
        async with asyncio.timeout(SECONDS):
            while any(folders_held_by(spare) for spare in (one, other)):  # they have not closed what they inherit
                await asyncio.sleep(0.01)
            assert shells._pool._process is not None
            launcher = shells._pool._process.pid
            # A spare that keeps the launcher's end of the other's channel keeps it for ever: the wait ends in a timeout.
            while sockets_of(one) & sockets_of(launcher) != sockets_of(other) & sockets_of(launcher):
                await asyncio.sleep(0.01)


async def test_spare_processes_that_have_ended_cost_no_start() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        spares = await spares_of(shells, shell)
        for spare in spares:
            os.kill(spare, signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            while any(os.path.exists(f"/proc/{spare}") for spare in spares):
                await asyncio.sleep(0.01)
        async with await shells.open() as other:
            assert (await other.run("echo on")).text == "on\n"


def test_the_group_of_a_spare_process_that_has_ended_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    started: list[tuple[int, list[int]]] = []

    class Groups:
        give_back = staticmethod(given.append)

    monkeypatch.setattr(Launcher, "_start", lambda self, number, fds: started.append((number, fds)))
    launcher = object.__new__(ShellLauncher)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    monkeypatch.setattr(launcher, "groups", Groups(), raising=False)
    process = subprocess.Popen(["sleep", "600"])
    launcher.spares = [_Spare(process.pid, ours, "group", 0)]
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(launcher.descriptors)]
    try:
        launcher._start(7, fds)
    finally:
        for fd in fds:
            os.close(fd)
    assert (given, started) == (["group"], [(7, fds)])
    assert process.wait(SECONDS) == -signal.SIGKILL, "nothing runs in a group that another box gets"


@pytest.fixture
def launcher() -> Iterator[ShellLauncher]:
    """A launcher without boxes and control groups."""
    bare = object.__new__(ShellLauncher)
    bare.spares, bare.boxes, bare.groups = [], {}, None
    with socket.socket() as bare.control:
        yield bare


def failing(self: ShellLauncher, group: str, source: int) -> bytes:
    raise OSError("no files")


def test_a_spare_process_whose_files_fail_ends_and_takes_no_order(
    launcher: ShellLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShellLauncher, "_prepare", failing)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.settimeout(SECONDS)
        theirs.settimeout(SECONDS)
        launcher._be_spare(theirs, "")
        with pytest.raises(BrokenPipeError):
            ours.send(b"S")


def test_a_spare_process_reports_that_its_files_fail_to_an_order_that_waits(
    launcher: ShellLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShellLauncher, "_prepare", failing)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    with ours, theirs, open(read, "rb") as shown:
        socket.send_fds(ours, [b"S"], [write])
        launcher._be_spare(theirs, "")
        os.close(write)
        assert b"no files" in os.read(shown.fileno(), 1000)


def test_what_fails_after_the_order_is_shown_on_the_terminal(launcher: ShellLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShellLauncher, "_prepare", lambda self, group, source: b"b")
    spare = launcher._new_spare()
    assert spare is not None
    read, write = os.pipe()  # which is no terminal
    with spare.channel, open(read, "rb") as shown:
        socket.send_fds(spare.channel, [b"S"], [write] * launcher.descriptors)
        os.close(write)
        assert b"the box could not be started: [Errno 25]" in shown.read()
    assert os.waitstatus_to_exitcode(os.waitpid(spare.pid, 0)[1]) == 125
