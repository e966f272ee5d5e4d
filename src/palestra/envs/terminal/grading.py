"""How results of terminal tasks are judged: every check is data, and one interpreter runs it, inside Palestra and outside.

``terminal:`` reads the final state from the layer of the agent's box. An exported Harbor task carries this file and
``standalone.py``, and reads it from the file system of its verifier. So both give the same reward for the same final state.

Standard library only: this file is copied into the tests of exported tasks. Checks are named tuples, not data classes, because
every grading of an exported task starts a Python, and to import ``dataclasses`` would take a fifth of that time.
"""

import json
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

__all__ = [
    "KINDS",
    "RUN_SECONDS",
    "AtMost",
    "Check",
    "Crontab",
    "Final",
    "Found",
    "Lines",
    "Modes",
    "Prints",
    "Settings",
    "Text",
    "Value",
    "Workers",
    "all_right",
    "expanded",
    "from_data",
    "to_data",
]

_MOST_TEXT = 4 * 2**20
RUN_SECONDS = 20.0


class Found(NamedTuple):
    """Something below the agent's home, or a file for a fresh one."""

    path: str
    """Relative to the home."""
    mode: int
    content: bytes | None
    """``None`` if it is not a regular file that can be read."""


class Final(Protocol):
    """What a check sees of the end of an episode."""

    def data(self, path: str) -> bytes | None:
        """Return a regular file below the agent's home; ``None`` if it is missing, a link or something else."""
        ...

    def tree(self, folder: str) -> Sequence[Found]:
        """Return everything below a folder of the agent's home."""
        ...

    def processes(self) -> list[list[str]]:
        """Return the arguments of every process beside the agent, as the kernel reports them."""
        ...

    def first_processes(self) -> list[list[str]]:
        """Return the same for the processes that ran before the agent's first turn and still run."""
        ...

    async def fresh(self, files: Sequence[Found], command: str) -> str:
        """Return what ``command`` prints in a fresh home with ``files``; nothing if it takes longer than ``RUN_SECONDS``."""
        ...


class Check(Protocol):
    """One condition on the final state."""

    async def right(self, final: Final) -> bool:
        """Return whether the condition holds."""
        ...


class Lines(NamedTuple):
    """A file has exactly these lines; blanks at the ends of lines and of the text do not count."""

    path: str
    expected: Sequence[str]

    async def right(self, final: Final) -> bool:
        return _same_lines(_text(final, self.path), self.expected)


class Text(NamedTuple):
    """A file has exactly this content."""

    path: str
    expected: str

    async def right(self, final: Final) -> bool:
        return _text(final, self.path) == self.expected


class Value(NamedTuple):
    """A JSON file has this value."""

    path: str
    expected: Any

    async def right(self, final: Final) -> bool:
        return bool(_read_json(_text(final, self.path)) == self.expected)


class AtMost(NamedTuple):
    """A text file has at most this number of bytes; newlines at its end do not count."""

    path: str
    limit: int

    async def right(self, final: Final) -> bool:
        content = final.data(self.path)  # all of it, because all of it is run
        return content is not None and len(content.rstrip(b"\n")) <= self.limit and _text(final, self.path) is not None


class Prints(NamedTuple):
    """A command prints the right thing in a fresh home, which gets some of the agent's files and some of the task's."""

    command: str
    expected: Any
    compared: Literal["text", "lines", "value"]
    take: Sequence[str]
    """Files and folders of the agent, all of which must exist."""
    extra: Mapping[str, str] = {}
    """Path → text of files of the task."""

    async def right(self, final: Final) -> bool:
        files: list[Found] = []
        for path in self.take:
            content = final.data(path)
            inside = [one for one in final.tree(path) if one.content is not None] if content is None else []
            if content is None and not inside:
                return False
            files += inside or [Found(path, 0o644, content)]
        files += [Found(path, 0o644, text.encode()) for path, text in self.extra.items()]
        printed = await final.fresh(files, self.command)
        if self.compared == "lines":
            return _same_lines(printed, self.expected)
        return bool((_read_json(printed) if self.compared == "value" else printed) == self.expected)


class Modes(NamedTuple):
    """The regular files below a folder are these, with these modes."""

    folder: str
    expected: Mapping[str, int]

    async def right(self, final: Final) -> bool:
        found = {one.path: stat.S_IMODE(one.mode) for one in final.tree(self.folder) if stat.S_ISREG(one.mode)}
        return found == self.expected


class Settings(NamedTuple):
    """Files of lines ``key = value`` have these values, each key once, in any order."""

    expected: Mapping[str, Mapping[str, str]]

    async def right(self, final: Final) -> bool:
        return all(_parsed(_text(final, path)) == values for path, values in self.expected.items())


class Crontab(NamedTuple):
    """A crontab means the same schedules as these lines."""

    path: str
    expected: Sequence[str]

    async def right(self, final: Final) -> bool:
        text = _text(final, self.path) or ""
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        written, wanted = list(map(_schedule, lines)), list(map(_schedule, self.expected))
        return len(written) == len(wanted) and all(one in wanted for one in written) and all(one in written for one in wanted)


class Workers(NamedTuple):
    """Of the worker processes that ran at the start, exactly these still run, and no supervisor of another one does."""

    expected: Sequence[str]

    async def right(self, final: Final) -> bool:
        running = final.processes()
        same = _workers(running) == _workers(final.first_processes()) == list(self.expected)
        return same and not _others_watched(running, self.expected)


KINDS: Mapping[str, Any] = {
    kind.__name__.lower(): kind for kind in (Lines, Text, Value, AtMost, Prints, Modes, Settings, Crontab, Workers)
}


async def all_right(checks: Sequence[Check], final: Final) -> bool:
    """Return whether every check holds; the first that does not ends it."""
    for check in checks:
        if not await check.right(final):
            return False
    return True


def to_data(checks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return checks as JSON values."""
    return [{"kind": type(check).__name__.lower(), **_fields(check)} for check in checks]


def _fields(check: Any) -> dict[str, Any]:
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in check._asdict().items()}


def from_data(data: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the checks of ``to_data``."""
    return [KINDS[one["kind"]](**{key: value for key, value in one.items() if key != "kind"}) for one in data]


# ------------------------------------------------------------------------------------------------------------------ reading


def _text(final: Final, path: str) -> str | None:
    content = final.data(path)
    try:
        return None if content is None else content[:_MOST_TEXT].decode()
    except UnicodeDecodeError:
        return None


def _read_json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _same_lines(text: str | None, expected: Sequence[str]) -> bool:
    return text is not None and _bare_lines(text) == _bare_lines("\n".join(expected))


def _bare_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _workers(running: list[list[str]]) -> list[str]:
    return sorted(words[0].removeprefix("worker-") for words in running if words[0].startswith("worker-"))


def _others_watched(running: list[list[str]], names: Sequence[str]) -> bool:
    """Return whether a supervisor runs whose worker, the word after its own name, is not one of ``names``."""
    pairs = [pair for words in running for pair in zip(words, [*words[1:], ""], strict=True)]
    return any("bin/supervisor" in word and worker not in names for word, worker in pairs)


def _parsed(text: str | None) -> dict[str, str] | None:
    pairs = [line.split("=", 1) for line in (text or "").splitlines() if line.strip()]
    if not pairs or not all(len(pair) == 2 for pair in pairs):
        return None
    found = {key.strip(): value.strip() for key, value in pairs}
    return found if len(found) == len(pairs) else None


_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def expanded(field: str, low: int, high: int) -> frozenset[int] | None:
    """Return the values that a field of a crontab means, or ``None``."""
    values: set[int] = set()
    for part in field.split(","):
        body, _, step = part.partition("/")
        first, _, last = body.partition("-")
        if body == "*":
            first, last = str(low), str(high)
        numbers = (first, last or (str(high) if step else first), step or "1")
        if not all(number.isascii() and number.isdecimal() and len(number) < 4 for number in numbers):
            return None
        start, end, width = map(int, numbers)
        if not width or start < low or end > high:
            return None
        values.update(range(start, end + 1, width))
    return frozenset(0 if (low, high) == (0, 7) and value == 7 else value for value in values)


def _schedule(line: str) -> tuple[object, ...] | None:
    fields = line.split(None, 5)
    if len(fields) != 6 or len(line) > 500:
        return None
    return (*(expanded(field, *limits) for field, limits in zip(fields, _RANGES, strict=False)), fields[5].strip())
