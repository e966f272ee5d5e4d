"""The grader of an exported terminal task: ``grading.py`` over the file system of the verifier, without Palestra.

If a check runs what the agent wrote, ``confined.py`` keeps the grader apart from it. It is imported only then: every grading
starts a Python, and what it imports would take a third of that time.

Standard library only: this file is copied into the tests of exported tasks.
"""

import contextlib
import json
import os
import stat
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from palestra.worlds.terminal.grading import Found, all_right, from_data

HOME = "/home/agent"
FIRST = "/var/lib/first-processes"
"""Process numbers and start times at the agent's first turn, which the task's setup has written."""
_LOGS = "/logs/verifier"
_MOST_ENTRIES, _MOST_BYTES = 5_000, 64 * 2**20


def main(folder: str) -> None:
    """Grade by ``check.json`` in ``folder``, and write the reward."""
    logs = opened_logs()
    reward: float | None = None
    with contextlib.ExitStack() as ending:  # whatever goes wrong, a program of the agent must not have the last word
        ending.callback(lambda: write_reward(reward, held=logs))
        data = json.loads(_bytes_of(f"{folder}/check.json"))
        final = Disk(data["variables"])
        if any(check["kind"] == "prints" for check in data["checks"]):
            from palestra.worlds.terminal.confined import end_descendants, keep_apart

            ending.callback(end_descendants)
            keep_apart(folder)
        reward = float(_finished(all_right(from_data(data["checks"]), final)))


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
        self._entries = {entry.path: entry for entry in _walk(home)}

    def data(self, path: str) -> bytes | None:
        entry = self._entries.get(path)
        return None if entry is None else entry.content

    def tree(self, folder: str) -> list[Found]:
        return sorted(entry for path, entry in self._entries.items() if path.startswith(f"{folder}/"))

    def processes(self) -> list[list[str]]:
        return [words for words, _ in _processes()]

    def first_processes(self) -> list[list[str]]:
        first = set(_bytes_of(FIRST).decode(errors="replace").split("\n")) if os.path.isfile(FIRST) else set()
        return [words for words, identity in _processes() if identity in first]

    async def fresh(self, files: Sequence[Found], command: str) -> str | None:
        from palestra.worlds.terminal.confined import printed_in_fresh_home

        return printed_in_fresh_home(self._home, files, command, self._variables)


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


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


if __name__ == "__main__":
    main(sys.argv[1])
