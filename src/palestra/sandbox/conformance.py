"""What every provider must do, as checks that can be run on any of them: ours, or one you wrote.

``findings = await conformance(sandbox)`` runs them all; an empty ``problem`` is a pass. A provider whose limits differ from
the defaults is checked against its own. The checks say whether the contract is kept, not whether the box holds: for that
there is the abuse corpus of the test suite.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from palestra.sandbox.contract import KilledBy, Program, Sandbox

__all__ = ["CHECKS", "Check", "Finding", "conformance"]

Check = Callable[[Sandbox], Awaitable[None]]


class Finding(NamedTuple):
    """How one check went."""

    check: str
    problem: str


async def conformance(sandbox: Sandbox) -> list[Finding]:
    """Run every check on ``sandbox``."""
    findings = []
    for check in CHECKS:
        try:
            await check(sandbox)
        except Exception as error:
            findings.append(Finding(check.__name__, f"{type(error).__name__}: {error}"))
        else:
            findings.append(Finding(check.__name__, ""))
    return findings


class BrokenContract(AssertionError):
    """The provider did something else than the contract says."""


def _expect(holds: bool, what: str, got: object) -> None:
    if not holds:
        raise BrokenContract(f"expected {what}, got {got!r}")


async def prints_to_both_streams(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="import sys; print('out'); print('err', file=sys.stderr)"))
    _expect((outcome.stdout, outcome.stderr) == (b"out\n", b"err\n"), "the two streams apart", outcome)
    _expect(outcome.ok, "exit code 0", outcome)


async def tells_exit_codes(sandbox: Sandbox) -> None:
    for code, expected in (("import sys; sys.exit(3)", 3), ("raise ValueError('x')", 1), ("import os; os._exit(7)", 7)):
        outcome = await sandbox.run(Program(code=code))
        _expect(outcome.exit_code == expected, f"exit code {expected}", outcome)


async def shows_tracebacks(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="def f():\n    return 1 / 0\nf()"))
    _expect(b"line 2, in f" in outcome.stderr and b"ZeroDivisionError" in outcome.stderr, "a traceback", outcome.stderr)


async def gives_standard_input(sandbox: Sandbox) -> None:
    sent = b"line\n" * 100_000
    outcome = await sandbox.run(Program(code="import sys; print(len(sys.stdin.buffer.read()))", stdin=sent))
    _expect(outcome.stdout.strip() == str(len(sent)).encode(), f"{len(sent)} bytes read", outcome)


async def takes_any_text(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="import sys; print('é 漢 🎈'); sys.stdout.buffer.write(b'\\xff\\x00')"))
    _expect(
        outcome.stdout == "é 漢 🎈\n".encode() + b"\xff\x00" or outcome.stdout.startswith(b"\xff"), "bytes as printed", outcome
    )


async def runs_commands(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(command=["cat", "a/b.txt"], files={"a/b.txt": b"hello"}))
    _expect(outcome.stdout == b"hello", "the file's content", outcome)
    missing = await sandbox.run(Program(command=["no-such-program"]))
    _expect(missing.exit_code == 127, "exit code 127", missing)


async def brings_files_out(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="open('r.bin','wb').write(bytes(range(256)))", wanted=["r.bin", "missing"]))
    _expect(dict(outcome.files) == {"r.bin": bytes(range(256))}, "one file", outcome.files)


async def lets_no_link_or_pipe_out(sandbox: Sandbox) -> None:
    code = "import os\nos.symlink('/etc/hostname', 'l')\nos.mkfifo('p')\nos.mkdir('d')\nos.symlink('/', 'root')"
    outcome = await sandbox.run(Program(code=code, wanted=["l", "p", "d", "root/etc/hostname", "d/x"]))
    _expect(not outcome.files, "no file", outcome.files)


async def ends_on_time(sandbox: Sandbox) -> None:
    for code in ("while True: pass", "import time; time.sleep(60)"):
        began = time.monotonic()
        outcome = await sandbox.run(Program(code=code, wall_seconds=1.0))
        _expect(outcome.killed_by is KilledBy.WALL_CLOCK, "killed by the clock", outcome)
        _expect(outcome.exit_code is None, "no exit code", outcome)
        _expect(time.monotonic() - began < 2.0, "an end within 2 s", time.monotonic() - began)


async def keeps_what_was_printed_before_a_kill(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="print('before', flush=True)\nwhile True: pass", wall_seconds=0.5))
    _expect(outcome.stdout == b"before\n", "the output before the kill", outcome)


async def bounds_output(sandbox: Sandbox) -> None:
    limits = sandbox.limits
    much = await sandbox.run(Program(code=f"print('x' * {limits.kept_output + 1000}, end='')"))
    _expect(much.ok and len(much.stdout) == limits.kept_output and much.dropped_output == 1000, "a cut", much.dropped_output)
    endless = await sandbox.run(Program(code="while True: print('x' * 1000)"))
    _expect(endless.killed_by is KilledBy.OUTPUT, "killed for output", endless.killed_by)


async def bounds_memory(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code=f"x = bytearray({2 * sandbox.limits.process_memory})"))
    _expect(not outcome.ok, "a failure", outcome)


async def leaves_nothing_behind(sandbox: Sandbox) -> None:
    await sandbox.run(Program(code="open('left', 'w').write('x'); import os; os.environ['LEFT'] = 'x'"))
    outcome = await sandbox.run(Program(code="import os; print(os.path.exists('left'), 'LEFT' in os.environ)"))
    _expect(outcome.stdout == b"False False\n", "a fresh box", outcome)


async def keeps_a_session(sandbox: Sandbox) -> None:
    async with await sandbox.open_session({"given.txt": b"7"}) as session:
        first = await session.run("x = int(open('given.txt').read())\ndef double(n): return 2 * n")
        _expect(first.ok and not first.stdout, "a silent success", first)
        _expect((await session.run("double(x)")).stdout == b"14\n", "the value of the last expression", first)
        failed = await session.run("print('so far')\n1 / 0")
        _expect(failed.exit_code == 1 and failed.stdout == b"so far\n", "an error that is told", failed)
        _expect((await session.run("x")).stdout == b"7\n", "variables that survive an error", None)
        await session.put({"more/late.txt": b"late"})
        _expect((await session.run("open('more/late.txt').read()")).stdout == b"'late'\n", "a late file", None)
        await session.run("open('made.txt', 'w').write('made')")
        _expect(await session.fetch("made.txt") == b"made", "a fetched file", None)


async def ends_a_session_that_breaks_a_limit(sandbox: Sandbox) -> None:
    async with await sandbox.open_session() as session:
        outcome = await session.run("while True: pass", wall_seconds=0.5)
        _expect(outcome.killed_by is KilledBy.WALL_CLOCK and not session.alive, "a session ended by the clock", outcome)
    async with await sandbox.open_session() as session:
        outcome = await session.run("import os; os._exit(5)")
        _expect(outcome.exit_code == 5 and not session.alive, "a session that ended itself", outcome)


async def keeps_sessions_apart(sandbox: Sandbox) -> None:
    async with await sandbox.open_session() as one, await sandbox.open_session() as two:
        await one.run("secret = 1; open('f', 'w').write('1')")
        outcome = await two.run("import os; print('secret' in globals(), os.path.exists('f'))")
        _expect(outcome.stdout == b"False False\n", "sessions that do not see each other", outcome)


async def keeps_concurrent_jobs_apart(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sandbox.run(Program(code=f"print({number})"))) for number in range(24)]
    answers = [int(task.result().stdout) for task in tasks]
    _expect(answers == list(range(24)), "every job its own answer", answers)


async def frees_what_is_cancelled(sandbox: Sandbox) -> None:
    task = asyncio.create_task(sandbox.run(Program(code="import time; time.sleep(60)", wall_seconds=60.0)))
    await asyncio.sleep(0.2)
    task.cancel()
    began = time.monotonic()
    await asyncio.gather(task, return_exceptions=True)
    _expect(task.cancelled() and time.monotonic() - began < 1.0, "a prompt end", time.monotonic() - began)
    _expect((await sandbox.run(Program(code="print(1)"))).stdout == b"1\n", "a sandbox that goes on", None)


CHECKS: tuple[Check, ...] = (
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
