"""Copies of layers: everything that ``cp -a`` keeps, at any depth."""

import os
import stat
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from palestra.sandbox.shell import SHELL_LIMITS, Shells
from palestra.sandbox.shell_copying import copy_tree
from palestra.sandbox.shell_users import COUNT, shifted

NEST = """import os
for _ in range(2500):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").close()"""


def listing(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Path → mode, size, time of the last change, and content or target."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
        found[str(path.relative_to(folder))] = (status.st_mode, size, status.st_mtime_ns, content)
    return found


def test_a_copy_keeps_contents_modes_times_links_and_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a/empty").mkdir(parents=True)
    (source / "a/one").write_bytes(b"one" * 100_000)
    (source / "a/one").chmod(0o4750)
    os.link(source / "a/one", source / "again")
    (source / "link").symlink_to("/nowhere")
    os.mkfifo(source / "pipe")
    with (source / "sparse").open("wb") as file:
        file.seek(2**30)
        file.write(b"end")
        file.truncate(2**31)
    (source / "a/empty").chmod(0o1777)
    os.utime(source / "a", ns=(1_000, 2_000))
    os.utime(source / "link", ns=(3_000, 4_000), follow_symlinks=False)
    target.mkdir()
    copy_tree(str(source), str(target), lambda user: user)
    with (target / "sparse").open("rb") as file:
        file.seek(2**30)
        assert file.read(4) == b"end\0"
    status = (target / "sparse").stat()
    assert (status.st_size, status.st_blocks < 1000) == (2**31, True)
    for folder in (source, target):
        (folder / "sparse").unlink()
        os.utime(folder, ns=(0, 0))
    assert listing(target) == listing(source)
    assert (target / "again").stat().st_ino == (target / "a/one").stat().st_ino


def test_users_of_one_box_become_those_of_another() -> None:
    owner = shifted(1_000, 70_000)
    assert [owner(user) for user in (1_000, 1_033, 999, 1_000 + COUNT)] == [70_000, 70_033, 70_000, 70_000]


async def test_folders_of_any_depth_are_copied_to_a_new_session_and_refused_for_a_verifier() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        assert (await shell.run(f"python3 - <<'END'\n{NEST}\nEND")).exit_code == 0
        with pytest.raises(OSError, match="more than 768 characters"):
            shell.copy_of("home/agent")
        assert all(len(entry.path) < 1024 for entry in shell.tree("home/agent"))
        async with await shell.reopened() as again:
            assert (await again.run("find . | wc -l")).text == "2502\n"


async def test_a_layer_that_is_full_can_be_copied() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        await shell.run("truncate -s 60M hole; head -c 200M /dev/urandom > full")
        async with await shell.reopened() as again:
            assert (await again.run("stat -c %s hole full")).text == f"{60 * 2**20}\n{SHELL_LIMITS.file_bytes}\n"
