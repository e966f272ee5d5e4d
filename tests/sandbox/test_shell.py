import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.errors import MissingExtra, Unsupported, UsageError
from palestra.sandbox.layers import NewFile, write_files
from palestra.sandbox.screen import clean, shortened
from palestra.sandbox.shell import SHELL_LIMITS, Shell, Shells

ROOT = Path(__file__).parents[2]
AS_ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play both parts")


@pytest.fixture
async def shells() -> AsyncIterator[Shells]:
    async with Shells() as opened:
        yield opened


@pytest.fixture
async def shell(shells: Shells) -> AsyncIterator[Shell]:
    async with await shells.open([NewFile("home/agent/a.txt", b"hello\n", 0o640), NewFile("srv/l", link="/etc/passwd")]) as one:
        yield one


async def test_a_session_keeps_its_state_and_tells_exit_codes(shell: Shell) -> None:
    assert (await shell.run("cat a.txt; x=5; cd /tmp")).text == "hello\n"
    assert (await shell.run("echo $x $PWD; (exit 7)")).exit_code == 7
    assert (await shell.run("echo $?; echo a; read y <<<b; break")).text.startswith("7\na\n")
    broken = await shell.run("if true; then")
    assert (broken.exit_code, "syntax error" in broken.text) == (2, True)
    long = await shell.run("echo " + "x" * 50_000 + " | wc -c")
    assert long.text == "50001\n"
    with pytest.raises(UsageError, match="60000"):
        await shell.run("x" * 60_001)
    ended = await shell.run("exit 3")
    assert (ended.exit_code, ended.ended, shell.alive) == (3, True, False)


async def test_a_hanging_command_returns_what_it_has_and_can_be_fed_and_interrupted(shell: Shell) -> None:
    waiting = await shell.run("echo first; read x; echo got $x; sleep 600", wall_seconds=0.3)
    assert (waiting.text, waiting.running, waiting.exit_code) == ("first\n", True, None)
    with pytest.raises(UsageError, match="still runs"):
        await shell.run("true")
    assert (await shell.send("fed\n")).text == "got fed\n"
    assert (await shell.interrupt()).exit_code == 130
    assert (await shell.run("echo on")).text == "on\n"


async def test_input_that_no_program_read_is_not_taken_for_the_next_command(shell: Shell) -> None:
    for _ in range(3):
        assert (await shell.run("sleep 0.2", wall_seconds=0.01)).running
        assert (await shell.send("(exit 9)\n(exit 8)\n", wall_seconds=20)).exit_code == 0
        outcome = await shell.run("sleep 0.1; (exit 5)")
        assert (outcome.exit_code, outcome.running) == (5, False)


async def test_output_is_bounded(shell: Shell) -> None:
    outcome = await shell.run("head -c 3000000 /dev/urandom | base64 -w 76")
    assert len(outcome.raw) <= 2**20 + 2**17
    assert outcome.dropped > 2**20
    assert (await shell.run("echo on")).text == "on\n"


async def test_a_fork_has_files_folder_and_exported_variables(shell: Shell) -> None:
    await shell.run("mkdir 'd d'; cd 'd d'; export Y='a b'; echo 1 > f; ln -s f g; chmod 600 f")
    async with await shell.fork() as twin:
        assert (await twin.run('echo "$Y $PWD"; cat g; stat -c %a f; echo 2 > f')).text == "a b /home/agent/d d\n1\n600\n"
        assert (await shell.run("cat f; ls -A / | grep palestra")).text == "1\n"
    await shell.run("sleep 600 & until grep -q 600 /proc/$!/cmdline; do :; done")
    with pytest.raises(Unsupported, match="processes run"):
        await shell.fork()
    assert [process.words for process in shell.processes()] == [["sleep", "600"]]


async def test_files_leave_the_box_only_if_they_are_its_own(shell: Shell) -> None:
    assert shell.fetch("home/agent/a.txt") == b"hello\n"
    await shell.run("ln -s /etc/passwd l; ln -s / r; mkfifo p")
    for path in ("home/agent/l", "home/agent/r/etc/passwd", "srv/l", "usr/bin/env"):
        with pytest.raises((PermissionError, FileNotFoundError)):
            shell.fetch(path)
    found = {entry.path: entry.content for entry in shell.tree("home/agent")}
    assert found == {"home/agent/a.txt": b"hello\n", "home/agent/l": None, "home/agent/p": None, "home/agent/r": None}


async def test_two_shells_share_nothing(shells: Shells) -> None:
    async with await shells.open() as one, await shells.open() as other:
        await one.run("echo x > /tmp/x; echo y > /dev/shm/y")
        assert (await other.run("ls /tmp /dev/shm")).text == "/dev/shm:\n\n/tmp:\n"


def small_root(folder: Path) -> Path:
    """A root folder with bash and a few programs."""
    for name in ("bin", "etc", "tmp", "root", "proc", "dev"):
        (folder / name).mkdir(parents=True)
    for program in ("bash", "cat", "rm", "ls", "mkdir"):
        shutil.copy(f"/usr/bin/{program}", folder / "bin")
        linked = subprocess.run(["ldd", f"/usr/bin/{program}"], capture_output=True, check=True, text=True).stdout
        for library in (word for word in linked.split() if word.startswith("/")):
            (folder / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, folder / library[1:])
    (folder / "etc/hostname").write_text("pristine\n")
    return folder


async def test_another_root_is_never_changed(tmp_path: Path) -> None:
    root = small_root(tmp_path / "root")
    async with Shells(root=str(root)) as shells, await shells.open() as shell:
        assert shell.layer_kind in ("overlay", "copy")
        assert (await shell.run("rm /bin/ls; echo mine > /etc/hostname; cat /etc/hostname; ls")).exit_code == 127
        async with await shell.fork() as twin:
            assert (await twin.run("cat /etc/hostname; ls")).text.startswith("mine\n")
        assert shell.fetch("etc/hostname") == b"mine\n"
        async with await shells.open() as fresh:
            assert (
                await fresh.run("cat /etc/hostname; echo /bin/*")
            ).text == "pristine\n/bin/bash /bin/cat /bin/ls /bin/mkdir /bin/rm\n"
    assert (root / "etc/hostname").read_text() == "pristine\n"
    with pytest.raises(UsageError, match="no root folder"):
        Shells(root=str(tmp_path / "none"))


async def test_a_fork_keeps_what_an_agent_has_removed_from_another_root(tmp_path: Path) -> None:
    root = small_root(tmp_path / "root")
    (root / "etc/d/below").mkdir(parents=True)
    (root / "etc/d/old").write_text("old")
    async with Shells(root=str(root)) as shells, await shells.open() as shell:
        await shell.run("rm -r /etc/d /etc/hostname; mkdir /etc/d; echo > /etc/d/new")
        async with await shell.fork() as twin, await twin.fork() as second:
            for one in (shell, twin, second):
                assert (await one.run("ls /etc /etc/d")).text == "/etc:\nd\n\n/etc/d:\nnew\n"


def test_without_bubblewrap_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.sandbox.profile._proven", set())
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingExtra, match="apt-get install bubblewrap"):
        Shells()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        (b"10%\r50%\r100%\r\n", "100%\n"),
        (b"longer\rabc\r\n", "abcger\n"),
        (b"ab\bc", "ac"),
        (b"\x1bP+q\x1b\\x\x1b[?25l\x00\x7f", "x"),
        ("\u202eevil\u2069".encode(), "evil"),
        (b"\xff\xc3\xa4", "\ufffd\u00e4"),
    ],
)
def test_control_sequences_are_cleaned(raw: bytes, text: str) -> None:
    assert clean(raw) == text


@settings(max_examples=50)
@given(st.binary(max_size=300))
def test_no_control_character_is_left(raw: bytes) -> None:
    assert not set(clean(raw)) & (set(map(chr, range(32))) - set("\n\t")) - set("\n\t")
    assert len(shortened(clean(raw), 40)) <= 90


async def test_files_take_the_place_of_links_and_links_of_files() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        await shell.run("ln -s /etc/hostname a; echo old > b; ln b c; ln -s nowhere d")
        new = [NewFile(f"home/agent/{name}", link=link) for name, link in (("b", "c"), ("d", "a"))]
        for _ in range(2):  # a second time, over the first
            shell.put([NewFile("home/agent/a", b"new\n"), *new])
        assert (await shell.run("cat a b c d; readlink b d; cat /etc/hostname")).text == "new\nold\nold\nnew\nc\na\nbox\n"


async def test_a_new_file_is_out_of_reach_of_descriptors_that_the_agent_kept() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        await shell.run("exec 7>>a")
        shell.put([NewFile("home/agent/a", b"new\n")])
        assert (await shell.run("echo mine >&7; cat a; ls -A")).text == "new\na\n"


def test_a_pipe_that_appears_while_a_file_is_written_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def slow(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT:  # after every look at the folder
            os.mkfifo(tmp_path / "test.sh")
            assert name != "test.sh", "this would wait for a reader of the pipe"
        return opened(name, flags, mode, dir_fd=dir_fd)

    layer = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr("os.open", slow)
    try:
        write_files(layer, [NewFile("test.sh", b"true")], 0)
    finally:
        os.close(layer)
    assert (os.listdir(tmp_path), (tmp_path / "test.sh").read_bytes()) == (["test.sh"], b"true")


@pytest.mark.parametrize("command", ["exec bash --norc -i", "export PROMPT_COMMAND; exec bash --norc -i"])
async def test_a_command_that_replaces_the_shell_is_noticed_at_once(command: str) -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        outcome = await shell.run(command)
        assert (outcome.running, outcome.replaced, outcome.ended) == (True, True, False)
        assert outcome.seconds < SHELL_LIMITS.wall_seconds / 3
        assert "42" in (await shell.send("echo $((6 * 7))\n", wall_seconds=2)).text
        outcome = await shell.send("exit 3\n", wall_seconds=5)
        assert (outcome.exit_code, outcome.ended) == (3, True)


async def test_a_program_that_answers_in_place_of_the_shell_is_noticed_by_the_next_command() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        forge = f"printf '\\e]7717;{shells.profile.word};1;0\\a'; exec sleep 60"
        assert (await shell.run(forge)).exit_code == 0
        outcome = await shell.run("echo on")
        assert (outcome.running, outcome.replaced) == (True, True)
        assert outcome.seconds < SHELL_LIMITS.wall_seconds / 3


async def test_a_script_that_starts_bash_is_no_replacement(tmp_path: Path) -> None:
    root = small_root(tmp_path / "root")
    (root / "bin/bash").rename(root / "bin/real")
    (root / "bin/bash").write_text('#!/bin/real\nexec /bin/real "$@"\n')
    (root / "bin/bash").chmod(0o755)
    async with Shells(root=str(root), warm=0) as shells, await shells.open() as shell:
        outcome = await shell.run("read -t 1 x; echo done")
        assert (outcome.text, outcome.replaced) == ("done\n", False)


async def test_a_command_that_takes_its_time_is_no_replacement() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        outcome = await shell.run("sleep 1; (exec sleep 0.5); bash -c 'sleep 0.5'; echo done")
        assert (outcome.text, outcome.replaced, outcome.exit_code) == ("done\n", False, 0)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="as-we-are"),
        pytest.param(["12345"], id="unprivileged", marks=AS_ROOT_ONLY),
        pytest.param(["users"], id="with-users", marks=AS_ROOT_ONLY),
    ],
)
def test_nothing_gets_out_and_nothing_is_left(words: list[str]) -> None:
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "tests.sandbox.shell_abuse", *words]
    report = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout)
    assert [row for row in report["rows"] if not row["contained"]] == []
    assert len(report["rows"]) >= 60
    assert report["after"] == report["before"]
