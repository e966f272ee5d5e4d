"""What of the host a box can see, and that it cannot write there: the flags of its mounts, not the rights of its user."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.sandbox.shell_abuse import SHELL
from tests.sandbox.test_shell_spare import spares_of

from palestra.sandbox import shell_mounts
from palestra.sandbox.shell import Shells

WRITABLE = next(attempt.code for attempt in SHELL if attempt.name == "writable mounts")
NESTED = """
import importlib.util, os, sys
found = importlib.util.spec_from_file_location("ours", sys.argv[3])
ours = importlib.util.module_from_spec(found)
found.loader.exec_module(ours)
user = os.geteuid()
ours.check(ours.libc.unshare(0x10020000), "unshare")
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {user} 1")):
    open(f"/proc/self/{name}", "w").write(text)
folder, number = sys.argv[1], int(sys.argv[2])
ours._MOUNT_SETATTR = number
ours.mount("none", "/", "", ours.MS_REC | ours.MS_PRIVATE)
programs, point = f"{folder}/programs", f"{folder}/link/point"
os.makedirs(f"{programs}/x/y")
os.makedirs(f"{point}/box")
ours.mount("covered", f"{programs}/x/y", "tmpfs", 0)
ours.mount("above", f"{programs}/x", "tmpfs", 0)
os.mkdir(f"{programs}/x/a\\u3000b c")
ours.mount("inner", f"{programs}/x/a\\u3000b c", "tmpfs", 0)
ours.mount_programs([programs], point, 0)
for path in ("", "/x", "/x/a\\u3000b c"):
    flags = os.statvfs(f"{point}/box{programs}{path}").f_flag
    assert flags & 7 == 7, (path, flags)
"""
"""The host's programs have a mount that another one covers, and one with unusual blanks in its name.

The module is loaded without its package, because a process with threads cannot enter a user namespace.
"""


@pytest.fixture
def linked() -> Iterator[Path]:
    """A folder behind a link that every user can reach."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("spare", [False, True], ids=["first", "spare"])
async def test_a_box_behind_a_link_has_no_writable_mount_of_the_host(
    linked: Path, monkeypatch: pytest.MonkeyPatch, spare: bool
) -> None:
    point = linked / "link" / "point"
    point.mkdir()
    monkeypatch.setattr("palestra.sandbox.shell.tempfile.mkdtemp", lambda **where: str(point))
    async with Shells(warm=0) as shells, await shells.open() as first:
        if spare:
            waiting = await spares_of(shells, first)
            async with await shells.open() as second:
                assert second._box.outer in waiting
                outcome = await second.run(WRITABLE)
        else:
            outcome = await first.run(WRITABLE)
        assert (outcome.text, outcome.exit_code) == ("", 0)


@pytest.mark.parametrize("etc", ["mkdir -p /etc/ld.so.cache/d; touch /etc/alternatives", "ln -s /tmp /etc", "mkfifo /etc"])
async def test_what_an_agent_puts_in_the_place_of_the_hosts_programs_is_no_failure_of_the_machine(etc: str) -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        assert (await shell.run(f"mv /etc /e && {etc}")).exit_code == 0
        async with await shell.reopened() as again:
            assert (await again.run("ls -1d /etc/alternatives/. /etc/ld.so.cache; cat /e/hostname")).text == (
                "/etc/alternatives/.\n/etc/ld.so.cache\nbox\n"
            )


@pytest.mark.parametrize("number", [442, 100_000], ids=["mount_setattr", "before-5.12"])
def test_covered_mounts_and_unusual_names_are_read_only(linked: Path, number: int) -> None:
    subprocess.run([sys.executable, "-I", "-c", NESTED, str(linked), str(number), shell_mounts.__file__], check=True)


def test_a_mount_that_stays_writable_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shell_mounts, "set_attributes", lambda *words, **more: None)
    fd = os.open(tmp_path, os.O_PATH)
    try:
        with pytest.raises(OSError, match="could not be mounted read-only"):
            shell_mounts._close(fd, str(tmp_path))
    finally:
        os.close(fd)
