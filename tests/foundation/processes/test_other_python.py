"""A process with another Python: how it starts, answers and ends."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.foundation.processes.test_child import eventually, runs

from palestra.errors import EnvError, InfrastructureError, UsageError
from palestra.foundation.processes.other_python import OtherPython

SCRIPT = """
import sys
def answer(asked):
    print("some words", asked["do"])
    if asked["do"] == "exit":
        sys.exit("the disk is full")
    if asked["do"] == "fail":
        raise ValueError("no such thing")
    return asked
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


async def test_it_answers_and_its_last_words_are_in_the_message(script: Path) -> None:
    process = OtherPython("Thing", lambda: sys.executable, script)
    try:
        assert await process.begin({"do": "one"}, 30.0) == {"do": "one"}
        with pytest.raises(EnvError, match=r"Thing has failed: (?s:.*)no such thing"):
            await process.ask({"do": "fail"}, 30.0)
        assert await process.ask({"do": "two"}, 30.0) == {"do": "two"}
        with pytest.raises(InfrastructureError, match=r"does not answer; it has printed: (?s:.*)the disk is full"):
            await process.ask({"do": "exit"}, 30.0)
        assert process.pid is None
        with pytest.raises(InfrastructureError, match="has ended"):  # no new process without its first question
            await process.ask({"do": "two"}, 30.0)
        assert process.pid is None
        assert await process.begin({"do": "three"}, 30.0) == {"do": "three"}
    finally:
        await process.end()


@pytest.mark.parametrize(
    ("name", "reason"), [("", "Permission denied"), ("script.py", "Permission denied"), ("none", "No such file")]
)
async def test_a_python_that_cannot_be_started_is_a_mistake_of_the_user(script: Path, name: str, reason: str) -> None:
    process = OtherPython("Thing", lambda: str(script.parent / name), script)
    with pytest.raises(UsageError, match=f"Python of Thing, .*cannot be started: {reason}"):
        await process.begin({}, 30.0)
    assert process.pid is None


ORPHAN = """
import asyncio, pathlib, sys
from palestra.foundation.processes.other_python import OtherPython

async def main():
    process = OtherPython("Sleeper", lambda: sys.executable, pathlib.Path(sys.argv[1]))
    print(await process.begin({"do": "leave"}, 60), process.pid, flush=True)
    await process.ask({"do": sys.argv[2]}, 600)

asyncio.run(main())
"""
SLEEPER = """
import subprocess, sys, time
def answer(asked):
    if asked["do"] == "hang":
        time.sleep(600)
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
"""


@pytest.mark.slow
async def test_a_process_that_hangs_ends_after_its_parent_with_what_it_has_started(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLEEPER)
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN, str(script), "hang"], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        with parent.stdout:
            pids = [int(word) for word in parent.stdout.readline().split()]
        assert [runs(pid) for pid in pids] == [True, True]
    finally:
        parent.kill()
        parent.wait()
    assert await eventually(lambda: not any(map(runs, pids)), 60.0)
