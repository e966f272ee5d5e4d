"""The grader of an exported terminal task: ``grading.py`` over the file system of the verifier, without Palestra.

If a check runs what the agent wrote, that program has the same user as this grader, because a verifier may have only one. So
the grader keeps nothing that such a program could use: it reads the agent's files and the expected values into memory and
removes the files with the values; it cannot be read or changed by other processes; a system call filter keeps the program from
sending signals, so it cannot end the grader by one; and the grader kills every process that is left before it writes the
reward. One way is left: under Docker a program of root can raise the grader's ``oom_score_adj`` and use up the memory, so that
the kernel ends the grader. The episode then has no reward, unless the program has written one itself.

Standard library only: this file is copied into the tests of exported tasks.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from palestra.envs.terminal.grading import RUN_SECONDS, Found, all_right, from_data
from palestra.sandbox.screen import clean

HOME = "/home/agent"
FIRST = "/var/lib/first-processes"
"""Process numbers and start times at the agent's first turn, which the task's setup has written."""
_LOGS = "/logs/verifier"
_ARTIFACTS = "/logs/artifacts"
"""Harbor copies this folder of the agent to every separate verifier."""
_MOST_ENTRIES, _KEPT_BYTES, _MOST_BYTES = 5_000, 256 * 1024, 64 * 2**20
_DUMPABLE, _NO_NEW_PRIVILEGES, _SECCOMP, _SUBREAPER = 4, 38, 22, 36  # options of prctl
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(folder: str) -> None:
    """Grade by ``check.json`` in ``folder``, and write the reward."""
    logs = opened_logs()
    reward = None
    try:
        data = json.loads(_bytes_of(f"{folder}/check.json"))
        final = Disk(data["variables"])
        if any(one["kind"] == "prints" for one in data["checks"]):
            _call(_LIBC.prctl(_DUMPABLE, 0, 0, 0, 0))  # the agent cannot read the expected values from memory
            _call(_LIBC.prctl(_SUBREAPER, 1, 0, 0, 0))
            shutil.rmtree(folder)
            _remove(_ARTIFACTS)  # a short program could run a long one from there
        reward = float(_finished(all_right(from_data(data["checks"]), final)))
    finally:  # whatever went wrong, a program of the agent must not have the last word
        _end_descendants()
        write_reward(reward, held=logs)


def _finished(work: Coroutine[Any, Any, bool]) -> bool:
    """Return the result of a coroutine that never waits: to import asyncio would take as long as everything else here."""
    try:
        work.send(None)
    except StopIteration as end:
        return bool(end.value)
    raise RuntimeError("a check of the grader waits for something")


class Disk:
    """The final state as the verifier's file system has it. Files are read once, at the start."""

    def __init__(self, variables: dict[str, str], home: str = HOME) -> None:
        self._variables, self._home = variables, home
        self._entries = {one.path: one for one in _walk(home)}

    def data(self, path: str) -> bytes | None:
        found = self._entries.get(path)
        return None if found is None else found.content

    def tree(self, folder: str) -> list[Found]:
        return sorted(one for path, one in self._entries.items() if path.startswith(f"{folder}/"))

    def processes(self) -> list[list[str]]:
        return [words for words, _ in _processes()]

    def first_processes(self) -> list[list[str]]:
        first = set(_bytes_of(FIRST).decode(errors="replace").split("\n")) if os.path.isfile(FIRST) else set()
        return [words for words, identity in _processes() if identity in first]

    async def fresh(self, files: Sequence[Found], command: str) -> str:
        _remove(self._home)
        os.makedirs(self._home, exist_ok=True)
        for one in files:
            place = f"{self._home}/{one.path}"
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as file:
                file.write(one.content or b"")
            os.chmod(place, one.mode & 0o777)
        try:
            return _printed(command, self._home, {**self._variables, "HOME": self._home})
        finally:
            _end_descendants()


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _remove(path: str) -> None:
    """Remove a file or folder of the agent: ``rm``, unlike ``shutil.rmtree``, also removes folders in any number of levels."""
    subprocess.run(["rm", "-rf", "--", path], check=False)


def _walk(home: str) -> Iterator[Found]:
    """Yield what stands below ``home``, links unfollowed. What the agent made unreadable is made readable first."""
    count = 0
    pending = [""]
    while pending:
        above = pending.pop()
        with contextlib.suppress(OSError):
            os.chmod(f"{home}/{above}", 0o700)
        for name in _names(f"{home}/{above}"):
            count += 1
            if count > _MOST_ENTRIES:
                return
            path = f"{above}{name}"
            try:
                mode = os.lstat(f"{home}/{path}").st_mode
            except OSError:  # its path is too long: no check asks for it
                continue
            if stat.S_ISDIR(mode):
                pending.append(f"{path}/")
            yield Found(path, mode, _content(f"{home}/{path}", mode) if stat.S_ISREG(mode) else None)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _content(path: str, mode: int) -> bytes | None:
    try:
        if not mode & stat.S_IRUSR:
            os.chmod(path, 0o600)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        return None
    return content if len(content) <= _MOST_BYTES else None


def _processes() -> Iterator[tuple[list[str], str]]:
    """Yield the arguments of every process, and its number with the time of its start."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                words = _bytes_of(f"/proc/{name}/cmdline").rstrip(b"\0").decode(errors="replace").split("\0")
                state = _bytes_of(f"/proc/{name}/stat").rpartition(b")")[2].split()
                if words != [""]:
                    yield words, f"{name} {int(state[19])}"


# --------------------------------------------------------------------------------------------------- programs of the agent


def _printed(command: str, home: str, variables: dict[str, str]) -> str:
    """Return what a command prints until it ends; nothing if it takes too long."""
    kept, deadline = bytearray(), time.monotonic() + RUN_SECONDS
    run = subprocess.Popen(
        ["/bin/bash", "-c", command],
        cwd=home,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_confine,
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
    _end_descendants()
    run.wait()
    kept += run.stdout.read(_KEPT_BYTES) or b""
    run.stdout.close()
    return clean(bytes(kept[:_KEPT_BYTES])) if ended else ""


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
    known = _ARCHITECTURES[machine]
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, known["audit"]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]  # the 32-bit calls of a 64-bit kernel
    for number in known["denied"]:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    # Limits of another process: the first argument is 0 for the caller's own.
    code += [(_EQUAL, 0, 4, known["prlimit64"]), (_LOAD, 0, 0, 16), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _REFUSE)]
    code += [(_RETURN, 0, 0, _ALLOW)]
    for name, operations in _OWNERS.items():
        code += [(_EQUAL, 0, 2 * len(operations) + 2, known[name]), (_LOAD, 0, 0, 24)]
        for operation in operations:
            code += [(_EQUAL, 0, 1, operation), (_RETURN, 0, 0, _REFUSE)]
        code += [(_RETURN, 0, 0, _ALLOW)]
    code += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *one) for one in code)


def _end_descendants() -> None:
    """Kill all processes that come from this one. Those whose parents have ended are children of this one."""
    while True:
        parents = {}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                parents[int(name)] = int(_bytes_of(f"/proc/{name}/stat").rpartition(b")")[2].split()[1])
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


def write_reward(reward: float | None, logs: str = _LOGS, held: int | None = None) -> None:
    """Write the reward, whatever a program of the agent has left at its place; without one, leave no reward there.

    ``held`` is a descriptor of the folder from before any program ran. A program may have moved this folder, which may be all
    that Harbor reads, and made another one at its path, so both get the reward.
    """
    if held is not None:
        with contextlib.suppress(FileNotFoundError):  # a program has removed it
            _replace_reward(reward, held)
    now = opened_logs(logs)
    if held is None or not os.path.samestat(os.fstat(held), os.fstat(now)):
        _replace_reward(reward, now)
    os.close(now)


def opened_logs(logs: str = _LOGS) -> int:
    """Return a descriptor of the folder for the reward, which is made if something else stands at its path."""
    above = os.path.dirname(logs)
    for folder in (os.path.dirname(above), above, logs):
        if os.path.islink(folder) or (os.path.lexists(folder) and not os.path.isdir(folder)):
            os.rename(folder, _unused(folder))
        os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(PermissionError):  # it belongs to another user, so the agent has not changed it
            os.chmod(folder, 0o777 if folder == logs else 0o755)
    return os.open(logs, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _replace_reward(reward: float | None, folder: int) -> None:
    with contextlib.suppress(PermissionError):
        os.fchmod(folder, 0o777)
    for name in ("reward.json", "reward.txt"):  # renamed, because to remove a deep folder could fail
        with contextlib.suppress(FileNotFoundError):
            os.rename(name, _unused(name), src_dir_fd=folder, dst_dir_fd=folder)
    if reward is not None:
        descriptor = os.open("reward.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps({"reward": reward}))


def _unused(path: str) -> str:
    """Return a name that a program of the agent cannot have taken before."""
    return f"{path}-of-the-agent-{os.urandom(8).hex()}"


def _call(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the grader cannot be kept apart from programs of the agent: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1])
