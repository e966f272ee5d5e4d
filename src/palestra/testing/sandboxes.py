"""The conformance suite of sandboxes: checks that any provider must pass, ours or one that you wrote.

``results = await conformance(sandbox)`` runs every check; a result with an empty ``problem`` passed. The checks read the limits
from the provider itself. They report whether the provider keeps the contract. They do not report whether its boxes are secure:
the test suite has a corpus of attacks for that (tests/sandbox/abuse.py).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from palestra.sandbox.contract import KilledBy, Program, Sandbox
from palestra.testing.conformance import ConformanceResult, expect, run_checks

__all__ = ["CHECKS", "SandboxCheck", "conformance"]

SandboxCheck = Callable[[Sandbox], Awaitable[None]]


async def conformance(sandbox: Sandbox) -> list[ConformanceResult]:
    """Run every check on ``sandbox``. It stays open."""
    return await run_checks(CHECKS, sandbox)


async def prints_to_both_streams(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="import sys; print('out'); print('err', file=sys.stderr)"))
    expect((outcome.stdout, outcome.stderr) == (b"out\n", b"err\n"), "the two streams apart", outcome)
    expect(outcome.ok, "exit code 0", outcome)


async def tells_exit_codes(sandbox: Sandbox) -> None:
    for code, expected in (("import sys; sys.exit(3)", 3), ("raise ValueError('x')", 1), ("import os; os._exit(7)", 7)):
        outcome = await sandbox.run(Program(code=code))
        expect(outcome.exit_code == expected, f"exit code {expected}", outcome)


async def shows_tracebacks(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="def f():\n    return 1 / 0\nf()"))
    expect(b"line 2, in f" in outcome.stderr and b"ZeroDivisionError" in outcome.stderr, "a traceback", outcome.stderr)


async def gives_standard_input(sandbox: Sandbox) -> None:
    sent = b"line\n" * 100_000
    outcome = await sandbox.run(Program(code="import sys; print(len(sys.stdin.buffer.read()))", stdin=sent))
    expect(outcome.stdout.strip() == str(len(sent)).encode(), f"{len(sent)} bytes read", outcome)


async def takes_any_text(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="import sys; print('é 漢 🎈'); sys.stdout.buffer.write(b'\\xff\\x00')"))
    expect(
        outcome.stdout == "é 漢 🎈\n".encode() + b"\xff\x00" or outcome.stdout.startswith(b"\xff"), "bytes as printed", outcome
    )


async def runs_commands(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(command=["cat", "a/b.txt"], files={"a/b.txt": b"hello"}))
    expect(outcome.stdout == b"hello", "the file's content", outcome)
    missing = await sandbox.run(Program(command=["no-such-program"]))
    expect(missing.exit_code == 127, "exit code 127", missing)


async def brings_files_out(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="open('r.bin','wb').write(bytes(range(256)))", wanted=["r.bin", "missing"]))
    expect(dict(outcome.files) == {"r.bin": bytes(range(256))}, "one file", outcome.files)


async def lets_no_link_or_pipe_out(sandbox: Sandbox) -> None:
    code = "import os\nos.symlink('/etc/hostname', 'l')\nos.mkfifo('p')\nos.mkdir('d')\nos.symlink('/', 'root')"
    outcome = await sandbox.run(Program(code=code, wanted=["l", "p", "d", "root/etc/hostname", "d/x"]))
    expect(not outcome.files, "no file", outcome.files)


async def ends_on_time(sandbox: Sandbox) -> None:
    for code in ("while True: pass", "import time; time.sleep(60)"):
        began = time.monotonic()
        outcome = await sandbox.run(Program(code=code, wall_seconds=1.0))
        expect(outcome.killed_by is KilledBy.WALL_CLOCK, "killed by the clock", outcome)
        expect(outcome.exit_code is None, "no exit code", outcome)
        expect(time.monotonic() - began < 2.0, "an end within 2 s", time.monotonic() - began)


async def keeps_what_was_printed_before_a_kill(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="print('before', flush=True)\nwhile True: pass", wall_seconds=0.5))
    expect(outcome.stdout == b"before\n", "the output before the kill", outcome)


async def bounds_output(sandbox: Sandbox) -> None:
    limits = sandbox.limits
    much = await sandbox.run(Program(code=f"print('x' * {limits.kept_output + 1000}, end='')"))
    expect(much.ok and len(much.stdout) == limits.kept_output and much.dropped_output == 1000, "a cut", much.dropped_output)
    endless = await sandbox.run(Program(code="while True: print('x' * 1000)"))
    expect(endless.killed_by is KilledBy.OUTPUT, "killed for output", endless.killed_by)


async def bounds_memory(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code=f"x = bytearray({2 * sandbox.limits.process_memory})"))
    expect(not outcome.ok, "a failure", outcome)


async def leaves_nothing_behind(sandbox: Sandbox) -> None:
    await sandbox.run(Program(code="open('left', 'w').write('x'); import os; os.environ['LEFT'] = 'x'"))
    outcome = await sandbox.run(Program(code="import os; print(os.path.exists('left'), 'LEFT' in os.environ)"))
    expect(outcome.stdout == b"False False\n", "a fresh box", outcome)


async def keeps_a_session(sandbox: Sandbox) -> None:
    async with await sandbox.open_session({"given.txt": b"7"}) as session:
        first = await session.run("x = int(open('given.txt').read())\ndef double(n): return 2 * n")
        expect(first.ok and not first.stdout, "a silent success", first)
        expect((await session.run("double(x)")).stdout == b"14\n", "the value of the last expression", first)
        failed = await session.run("print('so far')\n1 / 0")
        expect(failed.exit_code == 1 and failed.stdout == b"so far\n", "a reported error", failed)
        expect((await session.run("x")).stdout == b"7\n", "variables that survive an error", None)
        await session.put({"more/late.txt": b"late"})
        expect((await session.run("open('more/late.txt').read()")).stdout == b"'late'\n", "a late file", None)
        await session.run("open('made.txt', 'w').write('made')")
        expect(await session.fetch("made.txt") == b"made", "a fetched file", None)


async def ends_a_session_that_breaks_a_limit(sandbox: Sandbox) -> None:
    async with await sandbox.open_session() as session:
        outcome = await session.run("while True: pass", wall_seconds=0.5)
        expect(outcome.killed_by is KilledBy.WALL_CLOCK and not session.alive, "a session ended by the clock", outcome)
    async with await sandbox.open_session() as session:
        outcome = await session.run("import os; os._exit(5)")
        expect(outcome.exit_code == 5 and not session.alive, "a session that ended itself", outcome)


async def keeps_sessions_apart(sandbox: Sandbox) -> None:
    async with await sandbox.open_session() as one, await sandbox.open_session() as two:
        await one.run("secret = 1; open('f', 'w').write('1')")
        outcome = await two.run("import os; print('secret' in globals(), os.path.exists('f'))")
        expect(outcome.stdout == b"False False\n", "sessions that do not see each other", outcome)


async def keeps_concurrent_jobs_apart(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sandbox.run(Program(code=f"print({number})"))) for number in range(24)]
    answers = [int(task.result().stdout) for task in tasks]
    expect(answers == list(range(24)), "every job its own answer", answers)


async def frees_what_is_cancelled(sandbox: Sandbox) -> None:
    started = asyncio.Event()
    program = Program(code="import time; time.sleep(60)", wall_seconds=60.0)
    task = asyncio.create_task(sandbox.run(program, begun=started.set))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({task, waiting}, timeout=30.0, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    expect(started.is_set(), "a call of 'begun' when the program starts", "none")
    task.cancel()
    began = time.monotonic()
    await asyncio.gather(task, return_exceptions=True)
    expect(task.cancelled() and time.monotonic() - began < 1.0, "a prompt end", time.monotonic() - began)
    expect((await sandbox.run(Program(code="print(1)"))).stdout == b"1\n", "a sandbox that still works", None)


CHECKS: tuple[SandboxCheck, ...] = (
    prints_to_both_streams,
    tells_exit_codes,
    shows_tracebacks,
    gives_standard_input,
    takes_any_text,
    runs_commands,
    brings_files_out,
    lets_no_link_or_pipe_out,
    ends_on_time,
    keeps_what_was_printed_before_a_kill,
    bounds_output,
    bounds_memory,
    leaves_nothing_behind,
    keeps_a_session,
    ends_a_session_that_breaks_a_limit,
    keeps_sessions_apart,
    keeps_concurrent_jobs_apart,
    frees_what_is_cancelled,
)
