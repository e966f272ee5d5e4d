"""Boxes with several users: as root, and as an ordinary user with a range in /etc/subuid."""

import asyncio
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from palestra.errors import Unsupported
from palestra.sandbox.layers import SAVED, NewFile
from palestra.sandbox.profile import _FIRST_UID
from palestra.sandbox.shell import Shells
from palestra.sandbox.shell_users import COUNT, first_of_range, shift_owners
from palestra.sandbox.users import remove_tree, users_config, users_missing

ROOT = Path(__file__).parents[2]
NEEDS_USERS = pytest.mark.skipif(bool(users_missing()), reason=users_missing() or "-")
_MANY = """for u in 2001 2002 2003; do
setpriv --reuid $u --regid $u --clear-groups sh -c 'for i in $(seq 40); do sleep 9 & done; wait' 2>/dev/null &
done; sleep 0.5; ls -d /proc/[0-9]* | wc -l"""


async def play() -> None:
    """Do in a box what needs users."""
    async with Shells(users=True, warm=0) as shells, await shells.open([NewFile("tmp/f", b"secret\n", 0o600)]) as shell:
        made = await shell.run("useradd -m -U -u 1500 bob && chown bob: /tmp/f && stat -c %u:%g:%a /tmp/f /home/bob; id -u")
        assert made.text.split()[-3:] == ["1500:1500:600", "1500:1500:755", "0"], made.text
        become = "setpriv --reuid bob --regid bob --init-groups"
        tried = await shell.run(f"{become} sh -c 'cat /tmp/f; touch /etc/x; unshare -U true; kill -0 1'; ls /etc/x")
        assert tried.text.startswith("secret\n")
        assert tried.text.count("ermi") == 3, tried.text  # "Permission denied", "Operation not permitted" twice
        assert "No such file" in tried.text
        async with await shell.fork() as twin:
            assert (await twin.run("stat -c %u:%g:%a /tmp/f; id -u")).text == "1500:1500:600\n0\n"
        await shell.become(become, "/home/bob")
        assert (await shell.run("id -un; pwd; cat /tmp/f; (exit 3)")).text == "bob\n/home/bob\nsecret\n"
        assert (await shell.run("echo $?; cat /.palestra-next; touch /root/x")).exit_code == 1
        with pytest.raises(Unsupported, match="cannot be forked"):
            await shell.fork()
        assert (await shell.run("exit 5")).ended, "it does not fall back to root"
    async with Shells(users=True, warm=0) as shells, await shells.open() as shell:
        processes = int((await shell.run(_MANY)).text.splitlines()[-1])
        assert 40 < processes < shells.limits.processes + 8, "the limit is that of all users together"


async def save(folder: Path) -> None:
    """Save a layer, and open it again."""
    async with Shells(users=True, warm=0) as shells, await shells.open() as shell:
        await shell.run("mkdir -m 700 /srv/d; echo 1 > /srv/d/f; chown -R 1500:1600 /srv/d")
        await shell.save(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "no other user of the host may reach set-user-ID programs"
        layer = os.open(folder / SAVED, os.O_RDONLY | os.O_DIRECTORY)
        async with await shells.open_from(layer) as again:
            os.close(layer)
            assert (await again.run("stat -c %u:%g:%a /srv/d /srv/d/f /srv")).text == "1500:1600:700\n1500:1600:644\n0:0:755\n"
            await again.run("mkdir -m 000 /srv/closed")
            if os.geteuid():  # the host's root can read it
                with pytest.raises(PermissionError):
                    again.copy_of("srv")
                await again.run("rm -r /srv/d")
            assert [file.path for file in again.copy_of("srv")] == ([] if os.geteuid() else ["srv/d/f"])


@pytest.mark.gate
@NEEDS_USERS
@pytest.mark.slow
async def test_users_are_real_and_confined(tmp_path: Path) -> None:
    await play()
    (tmp_path / "layer").mkdir()
    await save(tmp_path / "layer")


DEEP = 1500
"""More levels than Python has frames."""


@pytest.mark.gate
@NEEDS_USERS
@pytest.mark.slow
async def test_an_agent_that_makes_deep_folders_can_still_be_graded() -> None:
    nest = f"import os\nfor _ in range({DEEP}): os.mkdir('d'); os.chdir('d')\nos.mkdir('end'); os.chown('end', 1500, 1500)"
    look = f"import os\nfor _ in range({DEEP}): os.chdir('d')\nprint(os.stat('end').st_uid)"
    async with Shells(users=True, warm=0) as shells, await shells.open() as shell:
        assert (await shell.run(f'cd /srv; python3 -c "{nest}"')).exit_code == 0
        async with await shell.reopened() as again:
            assert (await again.run(f'cd /srv; python3 -c "{look}"')).text == "1500\n"


def test_owners_change_at_any_depth_with_few_descriptors() -> None:
    own, where = os.geteuid(), os.getcwd()
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))  # on a disk, deep folders take seconds
    try:
        os.chdir(folder)
        for _ in range(DEEP):
            os.mkdir("d")
            os.chdir("d")
        os.mkdir("../e")
        os.symlink("/etc", "../l")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 16, hard))
        try:
            shift_owners(str(folder), 5000 if own == 0 else own)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        seen = {os.stat(".").st_uid, os.stat("../e").st_uid, os.lstat("../l").st_uid, folder.stat().st_uid}
        assert seen == {5000 if own == 0 else own}
        assert os.stat("/etc").st_uid == 0
        os.rmdir("../e")
        os.unlink("../l")
        for _ in range(DEEP):
            os.chdir("..")
            os.rmdir("d")
    finally:
        os.chdir(where)
        remove_tree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_files_keep_their_set_id_bits_when_their_owner_changes(tmp_path: Path) -> None:
    for name, mode in {"user": 0o4755, "group": 0o2755, "both": 0o6711, "plain": 0o644}.items():
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    shift_owners(str(tmp_path), 5000)
    found = {path.name: (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()}
    assert found == {"user": (5000, 0o4755), "group": (5000, 0o2755), "both": (5000, 0o6711), "plain": (5000, 0o644)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_with_several_names_changes_its_owner_once(tmp_path: Path) -> None:
    first = first_of_range(1)
    (tmp_path / "a").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "d" / "c").hardlink_to(tmp_path / "a")
    os.chown(tmp_path, first, first)
    os.chown(tmp_path / "a", first + 1000, first + 1000)
    (tmp_path / "a").chmod(0o4755)
    shift_owners(str(tmp_path), 0)
    status = (tmp_path / "d" / "c").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1000, 1000, 0o4755)


def test_ranges_of_boxes_lie_above_those_with_one_user_and_below_the_last_uid() -> None:
    assert first_of_range(0) >= _FIRST_UID + 4096 * 1024
    assert max(first_of_range(pid) for pid in range(36_000)) + COUNT < 2**32 - 1


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("newuidmap") is None, reason="needs root to play an ordinary user, and uidmap"
)
def test_an_ordinary_user_with_a_range_has_them_too(tmp_path: Path) -> None:
    ranges, folder = tmp_path / "subid", Path("/tmp", f"layer-{os.getpid()}")
    ranges.write_text("nobody:500000:65536\n")
    ranges.chmod(0o644)
    script = "mount --bind $0 /etc/subuid && mount --bind $0 /etc/subgid && exec $1 -m tests.sandbox.test_shell_users $2"
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": os.environ["PATH"]}
    words = ["unshare", "-m", "bash", "-c", script, str(ranges), sys.executable, str(folder)]
    try:
        subprocess.run(words, check=True, env=environment, cwd=ROOT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_what_is_missing_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "apt-get install uidmap" in users_missing()
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    (tmp_path / "sub").write_text("12345:100000:10\nother:1:65536\n12345:200000:65536\nnonsense\n")
    monkeypatch.setattr("palestra.sandbox.users._FILES", (("newuidmap", "/none"), ("newgidmap", "/none")))
    with pytest.raises(Unsupported, match=r"/none gives 12345 no 65535 ids"):
        users_config(8)
    monkeypatch.setattr("palestra.sandbox.users._FILES", (("newuidmap", str(tmp_path / "sub")),) * 2)
    assert users_config(8)["helpers"][0] == ("/usr/bin/newuidmap", [0, 12345, 1, 1, 200000, 65535])
    monkeypatch.setattr("os.uname", lambda: os.uname_result(("Linux", "h", "5.10.0-8", "v", "m")))
    assert "older than 5.14" in users_missing()


def main() -> None:
    """Play as nobody, as a program that this user starts."""
    from tests.sandbox.abuse_run import become
    from tests.sandbox.shell_abuse import preload

    folder = Path(sys.argv[1])
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    preload()
    become(65534)
    os.chdir("/")
    assert users_missing() == ""
    asyncio.run(play())
    asyncio.run(save(folder))
    shutil.rmtree(folder, ignore_errors=True)
    assert folder.exists(), "files of users of the box are not this user's own"
    remove_tree(folder)
    assert not folder.exists()


if __name__ == "__main__":
    main()
