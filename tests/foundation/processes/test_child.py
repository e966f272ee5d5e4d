"""The failure rules of child processes, each against a real process."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from palestra.foundation.processes.child import Child
from palestra.foundation.processes.frames import json_line, read_json_line, read_sized, receive_sized, sized

MOST_BYTES = 2**20

ANSWERING = """
import json, os, subprocess, sys, time

def answer(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def sleeper(**options):
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **options).pid

for line in sys.stdin:
    order = json.loads(line)
    if order == "hang":
        time.sleep(600)
    elif order == "late":
        time.sleep(0.2)
        answer('"late"\\n')
    elif order == "crash":
        sys.exit("the disk is full")
    elif order == "noise and crash":
        sys.stderr.write("x" * 2**24)
        sys.exit("the disk is full")
    elif order == "torn":
        answer('{"half": ')
        os._exit(0)
    elif order == "words":
        answer("not JSON\\n")
    elif order == "deep":
        answer("[" * 100_000 + "]" * 100_000 + "\\n")
    elif order == "flood":
        while True:
            answer("x" * 2**16)
    elif order == "noise":
        sys.stderr.write("x" * 2**24 + "the end")
        sys.stderr.flush()
        answer("1\\n")
    elif order == "leave":
        answer(f"{sleeper()}\\n")
    elif order == "leave in a session":
        answer(f"{sleeper(start_new_session=True)}\\n")
    else:
        answer(json.dumps(order) + "\\n")
sys.stderr.write("the input has ended")
"""

LENGTHS = """
import struct, sys, time
header = sys.stdin.buffer.read(4)
while header:
    order = sys.stdin.buffer.read(struct.unpack("<I", header)[0])
    if order == b"torn":
        sys.stdout.buffer.write(struct.pack("<I", 100) + b"half")
        sys.exit()
    size = 2**32 - 1 if order == b"flood" else len(order)
    sys.stdout.buffer.write(struct.pack("<I", size) + order)
    sys.stdout.buffer.flush()
    header = sys.stdin.buffer.read(4)
"""


@asynccontextmanager
async def answering() -> AsyncIterator[Child[Any, Any]]:
    command = [sys.executable, "-I", "-c", ANSWERING]
    child: Child[Any, Any] = await Child.start(command, {}, json_line, read_json_line, most_bytes=MOST_BYTES)
    try:
        async with asyncio.timeout(60.0):
            yield child
    finally:
        await child.kill()


def runs(pid: int) -> bool:
    """Whether a process runs, and is not only an entry in the table of processes."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def eventually(holds: Callable[[], bool], seconds: float) -> bool:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)
    return True


async def test_questions_get_their_own_answers_one_after_the_other() -> None:
    async with answering() as child:
        questions = [child.ask({"number": number}, 30.0) for number in range(20)]
        assert await asyncio.gather(*questions) == [{"number": number} for number in range(20)]
        assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid


@pytest.mark.parametrize(
    ("order", "error", "message"),
    [
        ("hang", TimeoutError, "^$"),
        ("crash", ConnectionError, "has ended"),
        ("torn", ConnectionError, "has ended"),
        ("words", ConnectionError, "is not an answer"),
        ("deep", ConnectionError, "is not an answer"),
        ("flood", ConnectionError, "is not an answer"),
    ],
)
async def test_without_an_answer_the_process_is_killed(order: str, error: type[OSError], message: str) -> None:
    async with answering() as child:
        assert await child.ask("first", 30.0) == "first"
        with pytest.raises(error, match=message):
            await child.ask(order, 0.3 if order == "hang" else 30.0)
        assert not child.alive
        assert not runs(child.pid)
        with pytest.raises(ConnectionError, match="has ended"):
            await child.ask("next", 30.0)


async def test_a_question_that_cannot_be_written_costs_nothing() -> None:
    async with answering() as child:
        with pytest.raises(TypeError):
            await child.ask(object(), 30.0)
        assert await child.ask("next", 30.0) == "next"


async def test_a_cancelled_question_kills_the_process_so_that_its_late_answer_is_never_read() -> None:
    async with answering() as child:
        await child.ask("first", 30.0)
        late = asyncio.create_task(child.ask("late", 30.0))
        after = asyncio.create_task(child.ask("after", 30.0))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        with pytest.raises(ConnectionError, match="has ended"):
            await after
        assert not runs(child.pid)


async def test_a_question_that_is_cancelled_before_its_turn_costs_nothing() -> None:
    async with answering() as child:
        late = asyncio.create_task(child.ask("late", 30.0))
        waiting = asyncio.create_task(child.ask("waiting", 30.0))
        await asyncio.sleep(0)
        waiting.cancel()
        assert await late == "late"
        assert waiting.cancelled()
        assert await child.ask("next", 30.0) == "next"


@pytest.mark.parametrize("order", ["crash", "noise and crash"])
async def test_the_last_words_are_kept_and_no_more(order: str) -> None:
    async with answering() as child:
        with pytest.raises(ConnectionError):
            await child.ask(order, 30.0)
        assert child.printed.endswith("the disk is full")
        assert len(child.printed) <= 1000


async def test_noise_is_read_and_dropped() -> None:
    async with answering() as child:
        for _ in range(3):
            assert await child.ask("noise", 30.0) == 1
        with pytest.raises(ConnectionError):
            await child.ask("crash", 30.0)
        assert child.printed == "the disk is full", "what it has printed since its last answer"


async def test_the_end_of_the_input_lets_the_process_clean_up() -> None:
    async with answering() as child:
        await child.ask("first", 30.0)
        await child.end(30.0)
        assert child.printed == "the input has ended"
        assert not runs(child.pid)


async def test_a_process_that_does_not_end_is_killed() -> None:
    command = [sys.executable, "-I", "-c", "import time; time.sleep(600)"]
    child: Child[Any, Any] = await Child.start(command, {}, json_line, read_json_line, most_bytes=MOST_BYTES)
    await child.end(0.1)
    assert not runs(child.pid)


async def test_what_a_killed_process_leaves_behind_is_killed() -> None:
    async with answering() as child:
        left = await child.ask("leave", 30.0)
        assert runs(left)
        await child.kill()
        assert await eventually(lambda: not runs(left), 10.0)


async def test_a_process_left_in_another_session_does_not_hold_up_the_end() -> None:
    async with answering() as child:
        left = await child.ask("leave in a session", 30.0)  # it holds the socket and the pipe of the child
        try:
            began = monotonic()
            await child.kill()
            assert monotonic() - began < 30.0
            assert not runs(child.pid)
        finally:
            os.kill(left, signal.SIGKILL)


async def start_with_lengths() -> Child[bytes, bytes]:
    command = [sys.executable, "-I", "-c", LENGTHS]
    return await Child.start(command, {}, sized, lambda reader: read_sized(reader, MOST_BYTES), most_bytes=MOST_BYTES)


@pytest.mark.parametrize(("order", "message"), [(b"torn", "has ended"), (b"flood", "4294967295 bytes")])
async def test_messages_with_a_length_follow_the_same_rules(order: bytes, message: str) -> None:
    child = await start_with_lengths()
    try:
        for payload in (b"", b"\n\0", b"x" * 2**18):
            assert await child.ask(payload, 30.0) == payload
        with pytest.raises(ConnectionError, match=message):
            await child.ask(order, 30.0)
        assert not runs(child.pid)
    finally:
        await child.kill()


@pytest.mark.parametrize("kept", [0, 2, 4, 6])
def test_a_child_reads_a_torn_question_as_the_end(kept: int) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, sized(b"whole") + sized(b"torn")[:kept])
    os.close(theirs)
    with open(ours, "rb") as incoming:
        assert receive_sized(incoming) == b"whole"
        assert receive_sized(incoming) is None


async def test_a_command_that_cannot_be_started_leaves_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        await Child.start(["/no/such/program"], {}, json_line, read_json_line, most_bytes=MOST_BYTES)
    assert len(os.listdir("/proc/self/fd")) == before
