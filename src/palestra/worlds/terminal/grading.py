"""How results of terminal tasks are judged: every check is data, and one interpreter runs it, inside Palestra and outside.

``terminal:`` reads the final state from the layer of the agent's box. An exported Harbor task carries this file and
``standalone.py``, and reads it from the file system of its verifier. So both give the same reward for the same final state.

Standard library only: this file is copied into the tests of exported tasks. Checks are named tuples, not data classes, because
every grading of an exported task starts a Python, and to import ``dataclasses`` would take a fifth of that time.
"""

import json
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

__all__ = [
    "KINDS",
    "RUN_SECONDS",
    "AtMost",
    "Condition",
    "Crontab",
    "ExactText",
    "Final",
    "Found",
    "Lines",
    "Modes",
    "Prints",
    "Settings",
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

    async def fresh(self, files: Sequence[Found], command: str) -> str | None:
        """Return what ``command`` prints in a fresh home with ``files``; ``None`` if it takes longer than ``RUN_SECONDS``."""
        ...


class Condition(Protocol):
    """One condition on the final state."""

    async def right(self, final: Final) -> bool:
        """Return whether the condition holds."""
        ...


class Lines(NamedTuple):
    """A file has exactly these lines; spaces, tabs and carriage returns at the ends of lines and of the text do not count."""

    path: str
    expected: Sequence[str]

    async def right(self, final: Final) -> bool:
        return _same_lines(_text(final, self.path), self.expected)


class ExactText(NamedTuple):
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
        return _is_json(_text(final, self.path), self.expected)


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
            inside = [file for file in final.tree(path) if file.content is not None] if content is None else []
            if content is None and not inside:
                return False
            files += inside or [Found(path, 0o644, content)]
        files += [Found(path, 0o644, text.encode()) for path, text in self.extra.items()]
        printed = await final.fresh(files, self.command)
        if self.compared == "lines":
            return _same_lines(printed, self.expected)
        return _is_json(printed, self.expected) if self.compared == "value" else printed == self.expected


class Modes(NamedTuple):
    """The regular files below a folder are these, with these modes."""

    folder: str
    expected: Mapping[str, int]

    async def right(self, final: Final) -> bool:
        modes = {entry.path: stat.S_IMODE(entry.mode) for entry in final.tree(self.folder) if stat.S_ISREG(entry.mode)}
        return modes == self.expected


class Settings(NamedTuple):
    """Files of lines ``key = value`` have these values, each key once, in any order, beside comments."""

    expected: Mapping[str, Mapping[str, str]]

    async def right(self, final: Final) -> bool:
        return all(_parsed(_text(final, path)) == values for path, values in self.expected.items())


class Crontab(NamedTuple):
    """Cron would run every command at the same times, and as often, as with these lines."""

    path: str
    expected: Sequence[str]

    async def right(self, final: Final) -> bool:
        times = _times(_text(final, self.path))
        return times is not None and times == _times("".join(f"{line}\n" for line in self.expected))


class Workers(NamedTuple):
    """Of the worker processes that ran at the start, exactly these still run, and no supervisor of another one does."""

    expected: Sequence[str]

    async def right(self, final: Final) -> bool:
        running = final.processes()
        same = _workers(running) == _workers(final.first_processes()) == list(self.expected)
        return same and not _others_watched(running, self.expected)


KINDS: Mapping[str, Any] = {
    "lines": Lines,
    "text": ExactText,
    "value": Value,
    "atmost": AtMost,
    "prints": Prints,
    "modes": Modes,
    "settings": Settings,
    "crontab": Crontab,
    "workers": Workers,
}
"""The kinds of checks, by their names in exported tasks."""
_NAME_OF = {kind: name for name, kind in KINDS.items()}


async def all_right(checks: Sequence[Condition], final: Final) -> bool:
    """Return whether every check holds; the first that does not ends it."""
    for check in checks:
        if not await check.right(final):
            return False
    return True


def to_data(checks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return checks as JSON values."""
    return [{"kind": _NAME_OF[type(check)], **_fields(check)} for check in checks]


def _fields(check: Any) -> dict[str, Any]:
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in check._asdict().items()}


def from_data(data: Sequence[Mapping[str, Any]]) -> list[Condition]:
    """Return the checks of ``to_data``."""
    return [KINDS[check["kind"]](**{key: value for key, value in check.items() if key != "kind"}) for check in data]


# ------------------------------------------------------------------------------------------------------------------ reading


def _text(final: Final, path: str) -> str | None:
    content = final.data(path)
    if content is None or len(content) > _MOST_TEXT:
        return None  # refused, because part of a file is not the file
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _is_json(text: str | None, expected: Any) -> bool:
    try:
        return text is not None and _same_json(
            json.loads(text, object_pairs_hook=_with_keys_once, parse_constant=_no_constant), expected
        )
    except (ValueError, RecursionError):
        return False


def _same_json(value: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(_same_json(value[key], item) for key, item in expected.items())
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(expected)
            and all(_same_json(ours, item) for ours, item in zip(value, expected, strict=True))
        )
    # True == 1 in Python, but not in JSON.
    return isinstance(value, bool) is isinstance(expected, bool) and bool(value == expected)


def _with_keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _same_lines(text: str | None, expected: Sequence[str]) -> bool:
    return text is not None and _bare_lines(text) == _bare_lines("\n".join(expected))


def _bare_lines(text: str) -> list[str]:
    return [line.rstrip(" \t\r") for line in text.rstrip(" \t\r\n").split("\n")]


def _workers(running: list[list[str]]) -> list[str]:
    return sorted(words[0].removeprefix("worker-") for words in running if words[0].startswith("worker-"))


def _others_watched(running: list[list[str]], names: Sequence[str]) -> bool:
    """Return whether a supervisor runs whose worker, the word after its own name, is not one of ``names``."""
    pairs = [pair for words in running for pair in zip(words, [*words[1:], ""], strict=True)]
    return any("bin/supervisor" in word and worker not in names for word, worker in pairs)


def _parsed(text: str | None) -> dict[str, str] | None:
    lines = [line.strip(" \t\r") for line in (text or "").split("\n")]
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    if not pairs or not all(len(pair) == 2 for pair in pairs):
        return None
    settings = {key.strip(" \t"): value.strip(" \t") for key, value in pairs}
    return settings if len(settings) == len(pairs) else None


# ------------------------------------------------------------------------------------------------------------------ crontabs

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 7, _WEEKDAYS))
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SETTINGS = re.compile(r"[ \t]*(?:(?:MAILTO|PATH)[ \t]*=.*|SHELL[ \t]*=[ \t]*(?:/usr)?/bin/(?:ba)?sh[ \t]*)")
"""Settings that change neither when a job runs nor what it does."""
_DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MOST_JOBS, _LONGEST_JOB = 1_000, 998
_MINUTES = 24 * 60 // 8
"""Bytes with a bit per minute of a day."""


def _times(text: str | None) -> dict[str, list[int]] | None:
    """Return for every command when cron runs it; ``None`` if cron refuses the crontab, or a setting may change the jobs.

    A bit stands for a minute of a year in which every date falls on every day of the week. The numbers of a command count the
    starts in each minute: the first holds the lowest binary digit of every count, the next the digit above.
    """
    if not text or not text.endswith("\n"):
        return None
    lines = [line.lstrip(" \t") for line in text.split("\n")]
    jobs = [line for line in lines if line and not line.startswith("#") and not _SETTINGS.fullmatch(line)]
    if not jobs or len(jobs) > _MOST_JOBS:
        return None
    times: dict[str, list[int]] = {}
    for job in jobs:
        read = _job(job)
        if read is None:
            return None
        command, carry = read
        counter = times.setdefault(command, [])
        for power, bits in enumerate(counter):
            counter[power], carry = bits ^ carry, bits & carry
        if carry:
            counter.append(carry)
    return times


def _job(line: str) -> tuple[str, int] | None:
    """Return the command of a job, and the minutes in which it runs."""
    first, *rest = re.split("[ \t]+", line, maxsplit=1)
    if first in _SHORTHANDS:
        line = f"{_SHORTHANDS[first]} {''.join(rest)}"
    words = re.split("[ \t]+", line, maxsplit=1 if first == "@reboot" else 5)
    command = words[-1] if words[-1].endswith("\\") else words[-1].rstrip(" \t")
    if len(line) > _LONGEST_JOB or not command:
        return None
    if first == "@reboot" and len(words) == 2:
        return f"@reboot {command}", 1
    if len(words) != 6:
        return None
    fields = [expanded(word, *limits) for word, limits in zip(words, _FIELDS, strict=False)]
    if None in fields:
        return None
    minutes, hours, days, months, weekdays = (field or frozenset() for field in fields)
    day = sum(1 << (60 * hour + minute) for hour in hours for minute in minutes).to_bytes(_MINUTES, "little")
    both = words[2].startswith("*") or words[4].startswith("*")
    year = [
        month in months and ((date in days and weekday in weekdays) if both else (date in days or weekday in weekdays))
        for month, last in enumerate(_DAYS_OF_MONTHS, 1)
        for date in range(1, last + 1)
        for weekday in range(7)
    ]
    return command, int.from_bytes(b"".join(day if runs else bytes(_MINUTES) for runs in year), "little")


def expanded(field: str, low: int, high: int, names: Sequence[str] = ()) -> frozenset[int] | None:
    """Return the values that a field of a crontab means, or ``None``. ``names`` may stand for the values from ``low`` on."""
    values: set[int] = set()
    for part in field.split(","):
        body, slash, step = part.partition("/")
        first, dash, last = body.partition("-")
        if body == "*":
            start, end = low, high
        else:
            numbers = [_value_of(word, low, names) for word in ((first, last) if dash else (first, first))]
            # Crons disagree about the values of 5/15.
            if None in numbers or (slash and not dash):
                return None
            start, end = (number or 0 for number in numbers)
        width = _value_of(step, 0, ()) if slash else 1
        if not width or not low <= start <= end <= high:
            return None
        values.update(range(start, end + 1, width))
    return frozenset(0 if (low, high) == (0, 7) and value == 7 else value for value in values)


def _value_of(word: str, low: int, names: Sequence[str]) -> int | None:
    if word.lower() in names:
        return low + names.index(word.lower())
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 4 else None
