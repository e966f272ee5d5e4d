"""Start two processes at once on one target, many times, and print the results: run by ``test_two_writers.py``.

    python two_writers.py FOLDER TRIES

The commands are the real ones, and so are the processes. They are forked from this one, which has imported the command line
already, so that both reach the target within milliseconds. A process that plays waits, in its first episodes, until the other
one has ended: so the two overlap in every try, however busy the machine is.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import rich.console
import rich.markdown
import rich.progress  # noqa: F401 - imported here once instead of in every process

from palestra.cli import main
from palestra.cli.app import app  # noqa: F401 - all commands
from palestra.rollouts import read_trajectories

EPISODES = 60
PATIENCE = 5.0
"""Seconds for which a process that plays waits for the other to end. Two that both play would wait for each other."""
_ENDED = "PALESTRA_TEST_OTHER_ENDED"


async def patient(_: str) -> str:
    """A policy that plays when the other process has ended."""
    until = monotonic() + PATIENCE
    while not Path(os.environ[_ENDED]).exists() and monotonic() < until:
        await asyncio.sleep(0.002)
    return r"\boxed{5}"


def start(arguments: list[str], said: Path, gate: int) -> int:
    """Fork a process that waits at ``gate`` and then runs ``palestra ARGUMENTS``."""
    pid = os.fork()
    if pid:
        return pid
    with open(said, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["palestra", *arguments]
    os.read(gate, 1)
    code: Any = 1
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def at_once(arguments: list[str], folder: Path) -> list[tuple[int, str]]:
    """The exit code and the output of two processes with the same arguments."""
    os.environ[_ENDED] = str(folder / "ended")
    gate, opener = os.pipe()
    said = [folder / f"said-{number}" for number in range(2)]
    processes = [start(arguments, file, gate) for file in said]
    os.write(opener, b"..")
    codes = {}
    for _ in processes:
        pid, status = os.waitpid(-1, 0)
        codes[pid] = os.waitstatus_to_exitcode(status)
        (folder / "ended").touch()
    os.close(gate)
    os.close(opener)
    return [(codes[pid], file.read_text()) for pid, file in zip(processes, said, strict=True)]


def commands(folder: Path, source: Path) -> dict[str, list[str]]:
    game = ["two_writers:patient", "-e", "game:GuessTheNumber-v0-easy", "-n", str(EPISODES)]
    return {
        "rollout": ["rollout", *game, "-o", str(folder / "run")],
        "eval": ["eval", *game, "-o", str(folder / "run")],
        "regrade": ["regrade", str(source), "-o", str(folder / "run")],
        "import": ["import", f"{source}.parquet", "--from", "parquet", "-o", str(folder / "run")],
        "export": ["export", str(source), "--to", "openai", "-o", str(folder / "file")],
        "view": ["view", str(source), "--export", str(folder / "file")],
        "leaderboard": ["leaderboard", str(source), "--table", str(folder / "table"), "-o", str(folder / "file")],
        "demo": ["demo", "-n", "2", "-o", str(folder / "file")],
    }


def tried(name: str, folder: Path, source: Path) -> dict[str, Any]:
    """Both processes' ends, and what is in the target."""
    folder.mkdir()
    ended = at_once(commands(folder, source)[name], folder)
    if (folder / "file").exists():
        return {"command": name, "ended": ended, "doubled": 0, "episodes": EPISODES}
    seen = Counter(
        (trajectory.group, trajectory.member) for trajectory in read_trajectories(folder / "run" / "trajectories.jsonl")
    )
    return {"command": name, "ended": ended, "doubled": seen.total() - len(seen), "episodes": len(seen)}


def run_all(folder: Path, tries: int) -> None:
    source = folder / "source"
    first = commands(folder, source)
    at_once([*first["eval"][:-1], str(source)], folder)
    at_once(["export", str(source), "--to", "parquet"], folder)
    # Four of five tries are the two commands that play; the fifth goes to the other commands in turn.
    rest = [name for name in first if name not in ("rollout", "eval")]
    for number in range(tries):
        name = rest[number // 5 % len(rest)] if number % 5 == 4 else ("rollout", "eval")[number % 2]
        print(json.dumps(tried(name, folder / f"{number}-{name}", source)), flush=True)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), int(sys.argv[2]))
