"""Copies of layers: everything that ``cp -a`` keeps, at any depth, and nothing from outside."""

import asyncio
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from palestra.errors import Unsupported
from palestra.sandbox import shell_copying, shell_launcher
from palestra.sandbox.layers import NewFile
from palestra.sandbox.procfs import children_of, read
from palestra.sandbox.shell import SHELL_LIMITS, Shell, Shells
from palestra.sandbox.shell_box import LayerFull
from palestra.sandbox.shell_copying import _Place, copy_tree
from palestra.sandbox.shell_users import COUNT, shifted

ROOT = Path(__file__).parents[2]
NEST = """import os
for _ in range(2500):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").close()"""
IMPOSTOR = r"""import os, re, sys, threading
def race():
    while True:
        os.rename("a/z", "z")
        os.rename("z", "a/z")
def prompt(number):
    print(f"\x1b]7717;{sys.argv[1]};{number};0\x07", end="", flush=True)
os.makedirs("a/z/deep")
open("a/z/deep/file", "w").close()
threading.Thread(target=race, daemon=True).start()
prompt(sys.argv[2])
for line in sys.stdin:
    open("/.palestra-fork", "w").write("#whole\n")
    prompt(re.search(r"__number=(\d+)", line)[1])"""
"""Takes the place of the shell, answers as the shell would, and moves a folder all the time."""
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


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
        await shell.run("truncate -s 60M hole another; head -c 200M /dev/urandom > full; head -c 200M /dev/urandom > more")
        sizes = (await shell.run("stat -c %s hole another full; df --output=avail . | tail -1")).text.split()
        assert sizes == [str(60 * 2**20)] * 2 + [str(SHELL_LIMITS.file_bytes), "0"]
        digests = (await shell.run("sha256sum full more")).text
        async with await shell.reopened() as again:
            assert (await again.run("stat -c %s hole another full")).text.split() == sizes[:3]
            assert (await again.run("sha256sum full more")).text == digests


FILL = "import os\nfor i in range(10**6): os.mkdir(f'/srv/{os.getpid()}-{i}')"
"""Uses up all inodes."""
LINKS = """import os
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
open("file", "wb").write(bytes(2**20))
for i in range(200): os.link("file", str(i))"""
"""Makes one file of 1 MiB with 200 names, which are too deep to be linked in a copy."""


async def fill() -> None:
    """An agent takes away /etc and all inodes, twice, and can be graded; files that do not fit into a copy are reported."""
    async with Shells(replace(SHELL_LIMITS, files=500), warm=0) as shells, await shells.open() as shell:
        for number in range(2):
            outcome = await shell.run(f'mv /etc /e{number}; echo {number} > /tmp/answer; python3 -c "{FILL}"; touch /tmp/more')
            assert "No space left" in outcome.text
            old, shell = shell, await shell.reopened()  # noqa: PLW2901 - the block closes what it opened, the test the last
            await old.close()
            found = await shell.run("cat /tmp/answer; ls -d /etc/alternatives; mkdir /tests$(< /tmp/answer)")
            assert (found.text, found.exit_code) == (f"{number}\n/etc/alternatives\n", 0)
        await shell.close()
    async with Shells(replace(SHELL_LIMITS, disk_bytes=32 * 2**20), warm=0) as shells, await shells.open() as shell:
        assert (await shell.run(f"python3 - <<'END'\n{LINKS}\nEND")).exit_code == 0
        with pytest.raises(LayerFull, match="No space left"):
            await shell.reopened()


async def test_a_shell_without_inodes_cannot_be_forked() -> None:
    async with Shells(replace(SHELL_LIMITS, files=500), warm=0) as shells, await shells.open() as shell:
        await shell.run(f'python3 -c "{FILL}"')
        with pytest.raises(Unsupported, match="no room"):
            await shell.fork()
        assert (await shell.run("echo alive")).text == "alive\n"


async def test_an_agent_that_takes_away_etc_and_all_inodes_can_be_graded() -> None:
    await fill()


@ROOT_ONLY
def test_the_same_holds_without_root() -> None:
    program = (
        "import asyncio\nfrom tests.sandbox.abuse_run import become\nfrom tests.sandbox.shell_abuse import preload\n"
        "from tests.sandbox.test_shell_copying import fill\npreload()\nbecome(12345)\nasyncio.run(fill())"
    )
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, cwd=ROOT)


def test_used_up_namespaces_are_no_full_layer(tmp_path: Path) -> None:
    assert not shell_launcher._is_full(str(tmp_path / "upper"))
    (tmp_path / "upper").mkdir()
    assert not shell_launcher._is_full(str(tmp_path / "upper"))


def test_a_folder_that_is_moved_during_the_copy_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, outside = (tmp_path / name for name in ("box/source", "target", "outside"))
    for folder in (source / "a/keys", source / "a/z", outside / "keys", target):
        folder.mkdir(parents=True)
    (outside / "keys/secret").write_text("of the host")
    names = os.listdir

    def names_and_move(fd: int) -> list[str]:
        found = sorted(names(fd))  # "z" is visited before "keys"
        if os.readlink(f"/proc/self/fd/{fd}") == str(source / "a/z"):
            os.rename(source / "a/z", outside / "z")
        return found

    monkeypatch.setattr(os, "listdir", names_and_move)
    with pytest.raises(OSError, match="a process has moved a folder"):
        copy_tree(str(source), str(target), lambda user: user)
    assert (outside / "z").exists()
    assert list(target.rglob("secret")) == []


def test_a_copy_stays_on_its_file_system() -> None:
    place = _Place("/")
    try:
        with pytest.raises(OSError, match="another file system"):
            place.descend("proc")
    finally:
        os.close(place.fd)


def is_stopped(shell: Shell) -> bool:
    """Whether the first process of the agent is stopped."""
    pid = children_of(children_of(shell._box.outer)[0])[0]
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] == b"T"


async def until_stopped(shell: Shell, wanted: bool) -> None:
    async with asyncio.timeout(20):
        while is_stopped(shell) is not wanted:
            await asyncio.sleep(0.01)


async def test_a_program_in_place_of_the_shell_is_stopped_during_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    impostor = NewFile("srv/impostor", IMPOSTOR.encode())
    async with Shells(warm=0) as shells, await shells.open([impostor]) as shell:
        opened = shells.open_from

        async def looking(source: int) -> Shell:
            await until_stopped(shell, True)
            return await opened(source)

        monkeypatch.setattr(shells, "open_from", looking)
        started = await shell.run(f"trap 'exec python3 /srv/impostor {shells.profile.word} $__number' DEBUG")
        assert (started.exit_code, started.text) == (0, "")
        for _ in range(3):
            async with await shell.fork() as twin:
                assert (await twin.run("find . -type f | wc -l")).text == "1\n"
            await until_stopped(shell, False)


async def test_a_process_that_starts_during_a_fork_is_noticed() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        await shell.run("printf() { [[ $1 == '#whole'* ]] && { sleep 600 & }; builtin printf \"$@\"; }")
        assert shell.processes() == []
        with pytest.raises(Unsupported, match="processes run"):
            await shell.fork()
        assert (await shell.run("unset -f printf; kill $!; wait; ls -A / | grep -c palestra")).text.splitlines()[-1] == "0"
        async with await shell.fork() as twin:
            assert (await twin.run("echo on")).text == "on\n"


async def test_a_fork_does_not_lengthen_a_session() -> None:
    async with Shells(warm=0, session_seconds=3.0) as shells, await shells.open() as shell:
        await asyncio.sleep(1.5)
        async with await shell.fork():
            ended = await shell.run("sleep 2.5; echo on", wall_seconds=20)
            assert (ended.ended, ended.text) == (True, "")


def test_paths_of_linked_files_are_remembered_only_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_copying, "_LONGEST_PATH", 20)
    monkeypatch.setattr(shell_copying, "_MOST_REMEMBERED", 25)
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source / "a", source / "b" / ("b" * 20), target):
        folder.mkdir(parents=True)
    for name in ("near", "next"):
        (source / "a" / name).write_text(name)
        os.link(source / "a" / name, source / f"{name}-at-the-top")
    deep = source / "b" / ("b" * 20)
    (deep / "far").write_text("far")
    os.link(deep / "far", deep / "again")
    walk = shell_copying._Walk(str(source), str(target), lambda user: user)
    try:
        walk.copy_entries()
        assert len(walk._linked) == 1, "two paths do not fit"
    finally:
        walk.close()
    for path in target.iterdir():
        path.unlink()
    copy_tree(str(source), str(target), lambda user: user)
    assert sorted(path.stat().st_nlink for path in target.rglob("ne*")) == [1, 1, 2, 2]
    assert [path.stat().st_nlink for path in (target / "b" / ("b" * 20)).iterdir()] == [1, 1], "too far for a path"


@ROOT_ONLY
def test_a_copy_keeps_owners_and_file_capabilities(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "d").mkdir(parents=True)
    (source / "d/f").write_text("x")
    (source / "l").symlink_to("f")
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    for name, user in (("d", 1_000), ("d/f", 1_033), ("l", 1_001)):
        os.chown(source / name, user, user + 1, follow_symlinks=False)
    os.setxattr(source / "d/f", "security.capability", capability)
    target.mkdir()
    copy_tree(str(source), str(target), shifted(1_000, 70_000))
    found = [(target / name).lstat() for name in ("d", "d/f", "l")]
    assert [(status.st_uid, status.st_gid) for status in found] == [(70_000, 70_001), (70_033, 70_034), (70_001, 70_002)]
    assert os.getxattr(target / "d/f", "security.capability") == capability
