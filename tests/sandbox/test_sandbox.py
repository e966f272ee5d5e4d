import asyncio
import os
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.leftovers import nothing_left

from palestra.errors import InfrastructureError, MissingExtra, UsageError
from palestra.sandbox import Bubblewrap, KilledBy, Limits, Program, open_sandbox
from palestra.sandbox.box import Box
from palestra.sandbox.files import fetch_file
from palestra.sandbox.shared import shared_sandbox


async def test_a_missing_bwrap_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingExtra, match="apt-get install bubblewrap"):
        Bubblewrap()


async def test_a_missing_python_says_so() -> None:
    with pytest.raises(UsageError, match="no Python at /usr/bin/no-such-python"):
        Bubblewrap(python="/usr/bin/no-such-python")


async def test_providers_have_names() -> None:
    async with open_sandbox(limits=Limits(wall_seconds=11.0)) as sandbox:
        assert sandbox.name == "bubblewrap"
        assert (await sandbox.run(Program(code="print(1)"))).stdout == b"1\n"
    with pytest.raises(UsageError, match="no sandbox 'box'"):
        open_sandbox("box")
    with pytest.raises(UsageError, match="not a Sandbox"):
        open_sandbox("builtins:dict")


async def test_holders_of_a_loop_share_one_sandbox() -> None:
    async with shared_sandbox() as one, shared_sandbox() as two, shared_sandbox(Limits(files=100)) as other:
        assert one is two
        assert one is not other
    async with shared_sandbox() as again:
        assert again is not one


def test_a_closing_that_is_cancelled_leaves_nothing() -> None:
    async def end_in_the_middle() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        sandbox = Bubblewrap(warm=2)
        await sandbox.run(Program(code=""))  # others are warm
        busy = asyncio.get_running_loop().run_in_executor(None, free.wait, 60)  # no thread is left that could wait
        closing = asyncio.create_task(sandbox.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        free.set()
        await busy

    free = threading.Event()
    with nothing_left():
        asyncio.run(end_in_the_middle())


@pytest.mark.parametrize("wrong", [{"wall_seconds": 0}, {"processes": -1}])
def test_limits_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="must be above 0"):
        Limits(**wrong)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a\0b", ".", "x" * 2000])
def test_paths_out_of_the_work_folder_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="not a relative path"):
        Program(code="", files={path: b""})


def test_a_program_is_code_or_a_command() -> None:
    for wrong in ({}, {"code": "1", "command": ["true"]}):
        with pytest.raises(UsageError):
            Program(**wrong)  # type: ignore[arg-type]


def test_files_are_fetched_beneath_their_folder_only(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "in" / "good").write_text("good")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "folder").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "in" / "pipe")
    folder = os.open(tmp_path / "in", os.O_RDONLY)
    try:
        assert fetch_file(folder, "good", 100) == b"good"
        for path in ("link", "folder/secret", "pipe", "good/x", "missing"):
            with pytest.raises((PermissionError, FileNotFoundError)):
                fetch_file(folder, path, 100)
        with pytest.raises(PermissionError, match="bytes"):
            fetch_file(folder, "good", 3)
    finally:
        os.close(folder)


async def test_a_launcher_that_is_killed_takes_its_boxes_along_and_is_replaced(boxes: Bubblewrap) -> None:
    started = asyncio.Event()
    program = Program(code="import time; time.sleep(60)", wall_seconds=60.0)
    running = asyncio.create_task(boxes.run(program, begun=started.set))
    await started.wait()
    process = boxes._pool._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="launcher"):
        await running
    assert (await boxes.run(Program(code="print(2)"))).stdout == b"2\n"


@pytest.mark.gate
@pytest.mark.slow
async def test_the_clock_holds_while_the_loop_is_busy(boxes: Bubblewrap) -> None:
    started = asyncio.Event()
    task = asyncio.create_task(boxes.run(Program(code="while True: pass", wall_seconds=0.3), begun=started.set))
    await started.wait()
    began = time.monotonic()
    while time.monotonic() - began < 2.0:  # as a plain environment that blocks the loop
        pass
    outcome = await task
    assert outcome.killed_by is KilledBy.WALL_CLOCK
    assert outcome.usage.cpu_seconds < 1.8


async def test_forged_frames_end_a_session(boxes: Bubblewrap) -> None:
    for forged in ("b'\\xff' * 8", "b'\\0\\0\\0\\1x'", "b'\\0\\0\\0\\0'"):
        async with await boxes.open_session() as session:
            outcome = await session.run(f"import os\nos.write(3, {forged})\nimport time; time.sleep(60)", wall_seconds=30.0)
            assert outcome.killed_by in (KilledBy.OUTPUT, KilledBy.CANCELLED)
            assert not session.alive
            with pytest.raises(UsageError, match="has ended"):
                await session.run("1")


async def test_a_channel_that_is_closed_does_not_stop_the_clock(boxes: Bubblewrap) -> None:
    async with await boxes.open_session() as session:
        outcome = await session.run("import os, time\nos.close(3)\ntime.sleep(60)", wall_seconds=0.5)
        assert outcome.killed_by is KilledBy.WALL_CLOCK


async def test_usage_is_reported(boxes: Bubblewrap) -> None:
    outcome = await boxes.run(Program(code="x = bytearray(200 * 2**20)\nimport time\nt = time.process_time()\n"
                                           "while time.process_time() - t < 0.3: pass"))  # fmt: skip
    assert 0.3 <= outcome.usage.cpu_seconds < 10.0
    assert outcome.usage.peak_memory > 200 * 2**20


@pytest.mark.gate
@pytest.mark.slow
async def test_too_much_processor_time_is_reported() -> None:
    async with Bubblewrap(Limits(cpu_seconds=1, wall_seconds=60.0)) as sandbox:
        assert (await sandbox.run(Program(code="while True: pass"))).killed_by is KilledBy.CPU_TIME


async def test_total_memory_is_bounded() -> None:
    grow = "x = bytearray(50 * 2**20)\n        time.sleep(60)"
    code = f"import os, time\nfor _ in range(6):\n    if not os.fork():\n        {grow}\ntime.sleep(60)"
    async with Bubblewrap(Limits(total_memory=150 * 2**20, wall_seconds=60.0)) as sandbox:
        outcome = await sandbox.run(Program(code=code))
        assert outcome.killed_by is KilledBy.MEMORY


async def test_packages_can_be_shown(boxes: Bubblewrap) -> None:
    folder = Path("/usr/share/python3")  # a folder that exists inside every box, off its search path
    if not (folder / "py3versions.py").exists():
        pytest.skip("Debian's python3-minimal is not installed")
    program = Program(code="import py3versions; print(py3versions.__file__)")
    assert not (await boxes.run(program)).ok
    async with Bubblewrap(packages=[str(folder)]) as sandbox:
        assert (await sandbox.run(program)).stdout.decode().strip() == str(folder / "py3versions.py")


async def test_hostile_code_cannot_send_descriptors_to_the_host(boxes: Bubblewrap) -> None:
    before = len(os.listdir("/proc/self/fd"))
    code = (
        "import socket, array\ns = socket.socket(fileno=3)\n"
        "for _ in range(20): s.sendmsg([b'\\0'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1] * 50))])\n"
    )
    async with await boxes.open_session() as session:
        await session.run(code, wall_seconds=2.0)
        assert len(os.listdir("/proc/self/fd")) - before < 20


@pytest.mark.parametrize("kind", ["session", "tests"])
@pytest.mark.parametrize("how", ["cancelled", "raises"])
async def test_a_box_whose_opening_fails_is_freed(
    kind: str, how: str, boxes: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: asyncio.Queue[Box] = asyncio.Queue()

    async def begin(self: Box, _job: bytes, _wall_seconds: float) -> None:
        begun.put_nowait(self)
        if how == "raises":
            raise InfrastructureError("sending to a box failed")
        await asyncio.sleep(3600)

    monkeypatch.setattr(Box, "begin", begin)
    opening = asyncio.ensure_future(boxes.open_session() if kind == "session" else boxes.open_tests(b"F", []))
    box = await begun.get()
    if how == "cancelled":
        opening.cancel()
    with pytest.raises(asyncio.CancelledError if how == "cancelled" else InfrastructureError):
        await opening
    assert box.control.fileno() == -1
    async with asyncio.timeout(30.0):
        await box.exited


async def test_a_cancelled_job_passes_its_room_on(boxes: Bubblewrap) -> None:
    pool = boxes._pool
    first, second = (asyncio.create_task(pool._room()) for _ in range(2))
    while len(pool._waiting) < 2:
        await asyncio.sleep(0)
    pool._wake()
    first.cancel()  # in the same turn of the loop: its future is set, but it has not resumed
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await asyncio.wait_for(second, 10.0)


async def test_a_session_with_a_wrong_path_leaves_no_box(boxes: Bubblewrap) -> None:
    taken: list[Box] = []
    take = boxes._pool.take

    async def taking() -> Box:
        taken.append(await take())
        return taken[-1]

    boxes._pool.take = taking  # type: ignore[method-assign]
    with pytest.raises(UsageError):
        await boxes.open_session({"../x": b""})
    assert [box.control.fileno() for box in taken] == [-1]


async def test_a_box_whose_outer_process_dies_in_its_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)  # root's boxes run as another user
        program = Path(folder, "bwrap")
        program.write_text("#!/bin/sh\nsleep 4711 &\nkill -9 $$\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        sandbox = Bubblewrap(Limits(wall_seconds=7.0), warm=0)
        with pytest.raises(InfrastructureError):
            await sandbox.run(Program(code="print(1)"))
        async with asyncio.timeout(20.0):
            await sandbox.close()
