"""Ctrl-C at ten moments of each of the eight long commands, typed at a terminal once the command has said something.

Each process gets a terminal of its own, and Ctrl-C is the key: the kernel signals the whole foreground group, children too.
The answer is one sentence with the way out and exit code 130; there is no traceback, and no process is left.
"""

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import pytest

from palestra.evaluation import evaluate

pytestmark = pytest.mark.slow

EASY = "game:GuessTheNumber-v0-easy"
RECIPE = """
steps = 1000
[model]
path = "tiny:game:GuessTheNumber-v0-easy"
[envs]
"game:GuessTheNumber-v0-easy" = 1.0
[play]
tasks = 4
group_size = 4
max_tokens = 4
"""
COMMANDS = {
    "demo": ("demo -n 2000", "the same command starts over"),
    "rollout": (f"rollout random -e {EASY} -n 20000 -o RUN", "the same command resumes"),
    "eval": (f"eval random -e {EASY} -n 20000 -o RUN", "resume"),
    "train": ("train recipe.toml -o RUN", "the same command"),
    "serve": (f"serve {EASY}", "the same command serves again"),
    "view": ("view evaluated --no-browser", "the same command opens it again"),
    "check": (f"check {EASY} -n 100000 --seconds 600", "the same command starts over"),
    "index build": ("index build corpus.jsonl RUN", "the same command starts over"),
}
MOMENTS = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.2, 2.0)
"""Seconds after the first output."""
CASES = [
    pytest.param(name, moment, marks=[pytest.mark.full] * ((row + column) % 3 > 0))
    for row, name in enumerate(COMMANDS)
    for column, moment in enumerate(MOMENTS)
]
"""``.ci/run`` tries a third of them: every command, and every moment."""
LONGEST = 300.0
TRACES = ("Traceback", "Exception ignored", "Task exception was never retrieved", "KeyboardInterrupt", "Aborted")


@dataclass
class Terminal:
    """A process with a terminal of its own."""

    process: subprocess.Popen[bytes]
    keyboard: int
    said: bytes = b""

    def read(self, seconds: float) -> bool:
        """Take in what the process writes within ``seconds``; false when it has closed the terminal."""
        ready, _, _ = select.select([self.keyboard], [], [], seconds)
        if not ready:
            return True
        try:
            part = os.read(self.keyboard, 65536)
        except OSError:  # the other side is closed
            return False
        self.said += part
        return bool(part)

    def wait_for_output(self) -> None:
        end = monotonic() + LONGEST
        while not self.said.strip() and monotonic() < end:
            assert self.read(0.5), self.said

    def listen(self, seconds: float) -> None:
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0 and self.read(left):
            pass

    def wait(self) -> int:
        end = monotonic() + LONGEST
        while monotonic() < end and self.read(0.2):
            pass
        return self.process.wait(max(end - monotonic(), 1.0))


@contextlib.contextmanager
def terminal(arguments: Sequence[str], cwd: Path) -> Iterator[Terminal]:
    keyboard, screen = pty.openpty()

    def begin() -> None:
        os.login_tty(screen)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell in the background has it ignored, in all its children too

    own = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "COLUMNS": "200", "TERM": "xterm"}
    command = [sys.executable, "-P", *arguments]
    process = subprocess.Popen(command, cwd=cwd, env=own, preexec_fn=begin, close_fds=True, pass_fds=[screen])
    os.close(screen)
    try:
        yield Terminal(process, keyboard)
    finally:
        for pid in members(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)
        os.close(keyboard)


def members(session: int) -> list[int]:
    """The processes of a session, zombies left out. The name of another process may be no text."""
    pids = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session_of, *_ = status.read_text(errors="replace").rpartition(")")[2].split()
            if int(session_of) == session and state != "Z":
                pids.append(int(status.parent.name))
    return pids


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ctrl-c")
    (folder / "recipe.toml").write_text(RECIPE)
    # An index of this takes 12 s or more: it is still being built at the last moment.
    (folder / "corpus.jsonl").write_text('{"text": "the hash table was invented by somebody at some time"}\n' * 600_000)
    evaluate(EASY, "random", n=3, out=folder / "evaluated")
    return folder


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(("name", "moment"), CASES)
def test_ctrl_c_is_answered_with_the_way_out(name: str, moment: float, place: Path) -> None:
    if name == "train":
        pytest.importorskip("torch")
    if name == "index build":
        pytest.importorskip("tantivy")
    line, way_out = COMMANDS[name]
    arguments = line.replace("RUN", f"{name.split()[0]}-{moment}").split()
    with terminal(["-m", "palestra.cli", *arguments], place) as user:
        interrupt(user, moment)
        assert way_out in user.said.decode(errors="replace").lower()


@pytest.mark.gate
@pytest.mark.parametrize("moment", [0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0])
def test_ctrl_c_while_the_command_is_loading(moment: float, tmp_path: Path) -> None:
    # "go" comes from inside main: whatever stands before it is not the command's.
    code = (
        "import builtins, sys; from palestra.cli import main; real = builtins.__import__\n"
        "def loading(*names, **more):\n"
        "    builtins.__import__ = real; print('go', flush=True); return real(*names, **more)\n"
        "builtins.__import__ = loading; sys.exit(main())"
    )
    with terminal(["-c", code, "serve", EASY], tmp_path) as user:
        interrupt(user, moment)


def interrupt(user: Terminal, moment: float) -> None:
    """Type Ctrl-C ``moment`` seconds after the first output, and look at how the process ends."""
    user.wait_for_output()
    user.listen(moment)
    os.write(user.keyboard, b"\x03")
    code = user.wait()
    output = user.said.decode(errors="replace")
    assert code == 130, output
    assert "Interrupted" in output
    assert not [trace for trace in TRACES if trace in output], output
    assert ended(user.process.pid), "a process was left running"


def ended(session: int) -> bool:
    """Whether all processes of a session end; a child may take a moment longer than its parent."""
    end = monotonic() + 60.0
    while members(session):
        if monotonic() > end:
            return False
        sleep(0.02)
    return True
