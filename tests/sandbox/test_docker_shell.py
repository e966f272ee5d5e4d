"""Shells in containers of a real daemon that the test starts, with an image made of this machine's programs."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sandbox.docker_daemon import docker_daemon, import_shell_image

from palestra.errors import EnvError, Unsupported, UsageError
from palestra.sandbox.contract import MIB
from palestra.sandbox.docker_client import docker
from palestra.sandbox.docker_shell import CONTAINER_LABEL, ContainerSettings, DockerShell, open_container
from palestra.sandbox.layers import NewFile
from palestra.sandbox.shell_profile import SHELL_LIMITS
from palestra.sandbox.shell_session import Ruined

IMAGE = "palestra-shell"
SETTINGS = ContainerSettings(limits=SHELL_LIMITS, cpus=1.0)


pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with docker_daemon() as address:
        import_shell_image(address, IMAGE)
        yield address


@pytest.fixture
def address(daemon: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DOCKER_HOST", daemon)
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    return daemon


@pytest.fixture
async def shell(address: str) -> AsyncIterator[DockerShell]:
    async with await open_container(IMAGE, SETTINGS) as opened:
        await opened.begin_episode()
        yield opened


def containers() -> bytes:
    return docker("ps", "--all", "--quiet", "--filter", f"label={CONTAINER_LABEL}")


async def until_none_is_left() -> None:
    async with asyncio.timeout(30):
        while containers():
            await asyncio.sleep(0.1)


async def test_a_shell_keeps_its_state_and_reports_exit_codes(shell: DockerShell) -> None:
    assert (await shell.run("cd /tmp; export A=1; f() { echo f$A; }; false")).exit_code == 1
    outcome = await shell.run("echo $?; pwd; f")
    assert (outcome.text, outcome.exit_code) == ("1\n/tmp\nf1\n", 0)
    assert (await shell.run("printf '%s|' 'it''s' \"ü\" '\\' !x '\t'")).text == "its|ü|\\|!x|\t|"
    long = "x" * 50_000
    assert (await shell.run(f"v='{long}\n{long[:9000]}'; echo ${{#v}}")).text == "59001\n"
    assert (await shell.run("stty raw; echo bad")).exit_code == 0
    assert (await shell.run("echo good")).raw == b"good\r\n"
    assert "PROMPT_COMMAND" not in (await shell.run("env")).text
    assert (await shell.run("exit 3")).exit_code == 3
    assert not shell.alive
    with pytest.raises(UsageError, match="ended"):
        await shell.run("true")


async def test_output_is_bounded_and_a_flood_is_interrupted(shell: DockerShell) -> None:
    outcome = await shell.run("seq 200000")
    assert outcome.dropped
    assert outcome.raw.startswith(b"1\r\n2\r\n")
    assert outcome.raw.endswith(b"200000\r\n")
    flood = await shell.run("while :; do seq 100000; done", wall_seconds=60)
    assert (flood.running, flood.exit_code) == (False, 130)


async def test_a_hanging_command_returns_and_can_be_typed_to_interrupted_and_killed(shell: DockerShell) -> None:
    waiting = await shell.run("read name; echo hello $name", wall_seconds=0.5)
    assert waiting.running
    assert (await shell.send("Ada\n", wall_seconds=5)).text == "hello Ada\n"
    assert (await shell.run("sleep 1000", wall_seconds=0.5)).running
    assert (await shell.interrupt()).exit_code == 130
    assert (await shell.run("trap '' INT; (trap '' INT TERM; sleep 1000; sleep 1000)", wall_seconds=0.5)).running
    assert len(shell.beside()) == 2
    assert (await shell.interrupt()).exit_code == 137
    assert (await shell.run("echo here")).text == "here\n"


async def test_files_go_in_and_out_and_links_are_refused(shell: DockerShell) -> None:
    shell.put([NewFile("srv/a/b.sh", b"echo 1\n", 0o755), NewFile("srv/l", link="a"), NewFile("srv/secret", b"s", 0o600)])
    assert (await shell.run("/srv/a/b.sh; cat /srv/l/b.sh")).text == "1\necho 1\n"
    assert shell.fetch("srv/a/b.sh") == b"echo 1\n"
    assert (shell.is_folder("srv/a"), shell.is_folder("srv/l"), shell.is_folder("no")) == (True, False, False)
    for path, kind in (("no", FileNotFoundError), ("srv/l", PermissionError), ("srv", PermissionError)):
        with pytest.raises(kind):
            shell.fetch(path)
    await shell.run("mkfifo /srv/pipe; ln /srv/secret /srv/twice; mkdir /srv/empty; head -c 60000000 /dev/zero > /big")
    copied = {file.path: (file.content, file.mode, file.link) for file in shell.copy_of("srv")}
    assert copied == {
        "srv/a/b.sh": (b"echo 1\n", 0o755, ""),
        "srv/l": (b"", 0o644, "a"),
        "srv/secret": (b"s", 0o600, ""),
        "srv/twice": (b"s", 0o600, ""),
    }
    shell.limits = replace(SHELL_LIMITS, file_bytes=MIB, disk_bytes=MIB)
    for read in (shell.fetch, shell.copy_of):
        with pytest.raises(OSError, match="60000000"):
            read("big")
    shell.move_away("srv")
    shell.move_away("srv")
    assert not shell.is_folder("srv")


async def test_limits_hold_and_there_is_no_network(shell: DockerShell) -> None:
    assert (await shell.run("cat /proc/net/dev")).text.count(":") == 1  # loopback
    assert (await shell.run("echo > /dev/tcp/192.0.2.1/80")).exit_code == 1
    hungry = await shell.run("x=$(head -c 1500000000 /dev/zero | cat -v); echo survived", wall_seconds=60)
    assert "survived" not in hungry.text
    await shell.interrupt() if hungry.running else None
    if shell.alive:
        bomb = "for i in $(seq 200); do sleep 1000 & done 2>&1"
        await shell.run(bomb, wall_seconds=20)
        assert len(shell.beside()) < SHELL_LIMITS.processes
    with pytest.raises(Unsupported, match="cannot be forked"):
        await shell.fork()


async def test_another_user_takes_over_with_the_exported_variables(shell: DockerShell) -> None:
    await shell.run("export A=1")
    await shell.become("setpriv --reuid=1500 --regid=1500 --clear-groups", "/home/bob")
    assert (await shell.run("id -un; pwd; echo $A; touch /etc/x")).text.startswith("bob\n/home/bob\n1\ntouch: ")
    assert (await shell.run("sleep 1000", wall_seconds=0.5)).running
    assert (await shell.interrupt()).exit_code == 130


async def test_a_renewed_shell_has_the_files_and_no_process_of_the_agent(address: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f'FROM {IMAGE}\nCOPY start /start\nENTRYPOINT ["/start"]\n')
    (tmp_path / "start").write_text('#!/bin/bash\nsleep 4000 &\nexec "$@"\n')
    (tmp_path / "start").chmod(0o755)
    docker("build", "--quiet", "--tag", "palestra-service", str(tmp_path))
    old = await open_container("palestra-service", SETTINGS)
    try:
        await old.begin_episode()
        await old.run("alias ls=false; echo mine > /tmp/mine; echo echo hacked > /etc/bash.bashrc; sleep 3000 & disown")
        assert old.beside() == ["sleep 3000"]
        async with await old.renewed() as shell:
            assert shell.beside() == []
            assert (await shell.run("ls /tmp; cat /tmp/mine")).text == "mine\nmine\n"
            assert "sleep 4000" in docker("top", shell._container.name, "-eo", "pid,args").decode()
            await shell.stop()
            assert shell.fetch("tmp/mine") == b"mine\n"
    finally:
        await old.close()
    assert not containers()


async def test_an_agent_that_ends_its_container_has_ruined_it(address: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f'FROM {IMAGE}\nCOPY start /start\nENTRYPOINT ["/start"]\n')
    (tmp_path / "start").write_text('#!/bin/bash\ntrap exit TERM\n"$@" <&0 &\nwait\n')
    (tmp_path / "start").chmod(0o755)
    docker("build", "--quiet", "--tag", "palestra-mortal", str(tmp_path))
    async with await open_container("palestra-mortal", SETTINGS) as shell:
        await shell.begin_episode()
        assert (await shell.run("kill 1; sleep 10")).ended
        with pytest.raises(Ruined, match="ended its container"):
            await shell.renewed()


async def test_no_container_is_left_after_close_cancel_and_failed_starts(address: str) -> None:
    async with await open_container(IMAGE, SETTINGS) as shell:
        assert containers()
        assert (await shell.run("sleep 1000", wall_seconds=0.2)).running
    assert not containers()
    shell = await open_container(IMAGE, SETTINGS)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await shell.run("sleep 1000")
    assert not containers()
    for seconds in (0.0, 0.02, 0.1, 0.3):  # the daemon may be making the container at any of these times
        opening = asyncio.create_task(open_container(IMAGE, SETTINGS))
        await asyncio.sleep(seconds)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert not containers()
    docker("build", "--tag", "palestra-bare", "-", given=f"FROM {IMAGE}\nRUN rm /bin/bash\n".encode())
    with pytest.raises(EnvError, match="bash"):
        await open_container("palestra-bare", SETTINGS)
    assert not containers()


async def test_no_container_is_left_if_this_process_is_killed(address: str) -> None:
    program = (
        "import asyncio, sys, time\nfrom tests.sandbox.test_docker_shell import *\n"
        "async def main():\n    shell = await open_container(IMAGE, SETTINGS)\n    await shell.run('sleep 1000 &')\n"
        "    print('open', flush=True)\n    await shell.run('sleep 1000', wall_seconds=1000)\nasyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=dict(os.environ))
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"open\n"
    assert containers()
    began = time.monotonic()
    process.send_signal(signal.SIGKILL)
    process.wait()
    await until_none_is_left()
    assert time.monotonic() - began < 30
