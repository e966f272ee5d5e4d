"""The process that a launcher of shells keeps ready for the next box."""

import asyncio
import os
import signal
import socket
import stat

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
    launcher.spares = [_Spare(0, ours, "group", 0)]
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(launcher.descriptors)]
    try:
        launcher._start(7, fds)
    finally:
        for fd in fds:
            os.close(fd)
    assert (given, started) == (["group"], [(7, fds)])
