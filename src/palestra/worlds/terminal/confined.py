"""Run programs that the agent of an exported terminal task wrote, apart from the grader.

Such a program has the same user as the grader, because a verifier may have only one. So the grader keeps nothing that the
program could use: it has read the agent's files and the expected values into memory, and removes the files with the values; it
cannot be read or changed by other processes; a system call filter keeps the program from sending signals, so it cannot end the
grader by one; and the grader kills every process that is left before it writes the reward. One way is left: under Docker a
program of root can raise the grader's ``oom_score_adj`` and use up the memory, so that the kernel ends the grader. The episode
then has no reward, unless the program has written one itself.

Standard library only: this file is copied into the tests of exported tasks.
"""

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from palestra.sandbox.screen import clean
from palestra.worlds.terminal.grading import RUN_SECONDS, Found

_ARTIFACTS = "/logs/artifacts"
"""Harbor copies this folder of the agent to every separate verifier."""
_KEPT_BYTES, _MOST_BYTES = 256 * 1024, 64 * 2**20
_DUMPABLE, _NO_NEW_PRIVILEGES, _SECCOMP, _SUBREAPER = 4, 38, 22, 36  # options of prctl
_LIBC = ctypes.CDLL(None, use_errno=True)


def keep_apart(folder: str) -> None:
    """Prepare the grader for programs of the agent: they cannot read its memory, nor the tests in ``folder``."""
    _call(_LIBC.prctl(_DUMPABLE, 0, 0, 0, 0))  # the agent cannot read the expected values from memory
    _call(_LIBC.prctl(_SUBREAPER, 1, 0, 0, 0))
    shutil.rmtree(folder)
    _remove(_ARTIFACTS)  # a short program could run a long one from there


def printed_in_fresh_home(home: str, files: Sequence[Found], command: str, variables: dict[str, str]) -> str | None:
    """Return what ``command`` prints in a fresh ``home`` with ``files``; ``None`` if it takes too long."""
    _remove(home)
    os.makedirs(home, exist_ok=True)
    for wanted in files:
        path = f"{home}/{wanted.path}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(wanted.content or b"")
        os.chmod(path, wanted.mode & 0o777)
    try:
        return _printed(command, home, {**variables, "HOME": home})
    finally:
        end_descendants()


def _remove(path: str) -> None:
    """Remove a file or folder of the agent: ``rm``, unlike ``shutil.rmtree``, also removes folders in any number of levels."""
    subprocess.run(["rm", "-rf", "--", path], check=False)  # noqa: S607 - inside the box


def _printed(command: str, home: str, variables: dict[str, str]) -> str | None:
    """Return what a command prints until it ends; ``None`` if it takes too long."""
    kept, deadline = bytearray(), time.monotonic() + RUN_SECONDS
    run = subprocess.Popen(
        ["/bin/bash", "-c", command],
        cwd=home,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_confine,  # noqa: PLW1509 - the process that runs this has no threads
    )
    assert run.stdout is not None
    os.set_blocking(run.stdout.fileno(), False)
    while True:
        ended = run.poll() is not None
        if ended or time.monotonic() > deadline:
            break
        select.select([run.stdout], [], [], 0.02)
        kept += run.stdout.read(65536) or b""
        del kept[_KEPT_BYTES:]
    end_descendants()
    run.wait()
    kept += run.stdout.read(_KEPT_BYTES) or b""
    run.stdout.close()
    return clean(bytes(kept[:_KEPT_BYTES])) if ended else None


def _confine() -> None:
    """Limit what the program of the agent may use, and keep it from sending signals to the grader."""
    os.setsid()
    for which, most in ((resource.RLIMIT_CPU, 60), (resource.RLIMIT_FSIZE, _MOST_BYTES), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(which, (most, most))
    program = filter_program(os.uname().machine)
    buffer = ctypes.create_string_buffer(program, len(program))
    _call(_LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    described = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    _call(_LIBC.prctl(_SECCOMP, 2, described, 0, 0))


_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "x86_64": {
        "audit": 0xC000003E,
        # kill, ptrace, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo, process_vm_writev,
        # pidfd_send_signal, io_uring_setup, pidfd_getfd, process_madvise
        "denied": (62, 101, 129, 200, 234, 297, 311, 424, 425, 438, 440),
        "prlimit64": 302,
        "fcntl": 72,
        "ioctl": 16,
    },
    "aarch64": {
        "audit": 0xC00000B7,
        "denied": (129, 117, 138, 130, 131, 240, 271, 424, 425, 438, 440),
        "prlimit64": 261,
        "fcntl": 25,
        "ioctl": 29,
    },
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_OWNERS = {"fcntl": (8, 10, 15), "ioctl": (0x8901, 0x8902)}
"""Operations that choose which process gets a signal when a file is ready, and which signal."""


def filter_program(machine: str) -> bytes:
    """Return a BPF program that refuses the system calls with which a process reaches another one."""
    if machine not in _ARCHITECTURES:
        raise OSError(f"programs of the agent cannot be run safely on {machine}: only on {' and '.join(_ARCHITECTURES)}")
    calls = _ARCHITECTURES[machine]
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, calls["audit"]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]  # the 32-bit calls of a 64-bit kernel
    for number in calls["denied"]:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    # Limits of another process: the first argument is 0 for the caller's own.
    code += [(_EQUAL, 0, 4, calls["prlimit64"]), (_LOAD, 0, 0, 16), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _REFUSE)]
    code += [(_RETURN, 0, 0, _ALLOW)]
    for name, operations in _OWNERS.items():
        code += [(_EQUAL, 0, 2 * len(operations) + 2, calls[name]), (_LOAD, 0, 0, 24)]
        for operation in operations:
            code += [(_EQUAL, 0, 1, operation), (_RETURN, 0, 0, _REFUSE)]
        code += [(_RETURN, 0, 0, _ALLOW)]
    code += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def end_descendants() -> None:
    """Kill all processes that come from this one. Those whose parents have ended are children of this one."""
    while True:
        parents = {}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        for pid in parents:
            if _descends(pid, parents):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def _descends(pid: int, parents: dict[int, int]) -> bool:
    above, steps = parents.get(pid, 0), 0
    while above and above != os.getpid() and steps < len(parents):
        above, steps = parents.get(above, 0), steps + 1
    return above == os.getpid()


def _call(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the grader cannot be kept apart from programs of the agent: {os.strerror(number)}")
