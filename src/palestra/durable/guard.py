"""Is this the same run? Every command makes this comparison before it writes into a folder.

``config.json`` in a run folder records the request. A command that finds one compares it, by dotted name, with the current
request:

- a ``changeable`` name may differ, and the file takes the new value;
- a ``growing`` name may be a larger number, and the file takes it;
- a ``noted`` name may differ, and the file keeps the first value;
- any other difference is refused.

The table ``data`` of a request has the hash of each environment's rows. If a hash differs, the refusal names the file.

A folder without results (an earlier command failed before its first episode or step) may become another run.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from palestra.durable.files import write_whole
from palestra.durable.inside import Inside
from palestra.durable.lock import ANOTHER_FOLDER, lock_folder
from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import decode_json, encode_json

__all__ = ["CONFIG", "Claim", "Identity", "claim"]

CONFIG = "config.json"
_DATA = "data."
_SHOWN = 3
"""Most differences named in a refusal."""
_LONGEST = 80
"""Most characters of a value shown in a refusal."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity of a run. Names are dotted: ``play.concurrency``; a name includes everything below it."""

    run: str
    """The kind of run in messages and in the file: ``"evaluation"``."""
    config: Any
    """The request: a struct or a mapping that JSON can hold."""
    changeable: Collection[str] = ()
    """Names that may differ on resume; the file takes the new value."""
    growing: Collection[str] = ()
    """Names of numbers that may grow; the file takes the new value."""
    noted: Collection[str] = ()
    """Names that may differ on resume; the file keeps the first value."""
    results: Collection[str] = ("trajectories.jsonl",)
    """Files of the folder that hold results. If there are none, the folder may become another run."""
    others: Collection[str] = ()
    """The other files that the run writes. A link or a folder in the place of one is refused before the work begins."""
    folders: Collection[str] = ()
    """The folders that the run makes inside. A link or a file in the place of one is refused as well."""


@dataclass(frozen=True)
class Claim:
    """A folder that only this process may write."""

    folder: Path
    inside: Inside
    """The door to the folder: everything in it is read and written through it."""
    resumed: bool
    """Whether the folder holds results of this run."""
    replaced: bool
    """Whether the folder held another run's ``config.json`` and no results; then remove what else that run left."""


@contextmanager
def claim(folder: str | Path, identity: Identity) -> Iterator[Claim]:
    """Lock ``folder`` for the run ``identity``, compare or write its ``config.json``, and release it at the end.

    Raise ``UsageError`` with a remedy if another process holds the folder, or if it holds another run.
    """
    folder = Path(folder)
    with lock_folder(folder):
        yield _checked(folder, identity)


def _checked(folder: Path, identity: Identity) -> Claim:
    inside = Inside(folder)
    for name in (CONFIG, *identity.results, *identity.others):
        if (inside / name).exists() and not (inside / name).is_file():
            raise UsageError(f"{folder / name} is not a file: rename it or remove it, or {ANOTHER_FOLDER}")
    for name in identity.folders:
        if (inside / name).exists() and not (inside / name).is_dir():
            raise UsageError(f"{folder / name} is not a folder: rename it or remove it, or {ANOTHER_FOLDER}")
    resumed = any(_has_content(inside / name) for name in identity.results)
    before, now = _read(inside / CONFIG, resumed=resumed), _as_file(identity)
    if before is None and resumed:
        raise UsageError(f"{folder} holds results but no {CONFIG}, so it cannot be resumed: {ANOTHER_FOLDER}")
    wrong = [] if before is None else _differences(before, now, identity)
    if wrong and resumed:
        raise UsageError(_refusal(folder, before or {}, now, wrong))
    kept = now if before is None or wrong else _with_notes(before, now, identity.noted)
    if kept != before:
        write_whole(inside / CONFIG, msgspec.json.format(encode_json(kept), indent=2))
    return Claim(folder, inside, resumed, bool(wrong))


def _has_content(path: Inside) -> bool:
    return path.exists() and path.stat().st_size > 0


def _as_file(identity: Identity) -> dict[str, Any]:
    """Return ``config.json`` for ``identity``, in the form in which it is read back."""
    config: dict[str, Any] = msgspec.json.decode(encode_json(identity.config))
    return {"run": identity.run, **config}


def _read(path: Inside, *, resumed: bool) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        return decode_json(path.read_bytes(), dict[str, Any])
    except SchemaError as error:
        if not resumed:
            return {}  # damaged, but there are no results yet
        raise UsageError(f"{path} is damaged ({error}): {ANOTHER_FOLDER}") from None


def _differences(before: dict[str, Any], now: dict[str, Any], identity: Identity) -> list[str]:
    """Return the dotted names that differ and must not."""
    first, second = _flat(before), _flat(now)
    free = (*identity.changeable, *identity.noted)
    return [
        name
        for name in dict.fromkeys((*second, *first))
        if first.get(name) != second.get(name)
        and not _is_below(name, free)
        and not (_is_below(name, identity.growing) and _has_grown(first.get(name), second.get(name)))
    ]


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    """Return dotted name → value. An empty mapping has no entry."""
    if not isinstance(data, dict):
        return {prefix.removesuffix("."): data}
    return {name: value for key, inner in data.items() for name, value in _flat(inner, f"{prefix}{key}.").items()}


def _is_below(name: str, names: Collection[str]) -> bool:
    return any(name == above or name.startswith(f"{above}.") for above in names)


def _has_grown(before: Any, now: Any) -> bool:
    return isinstance(before, int | float) and isinstance(now, int | float) and now > before


def _with_notes(before: dict[str, Any], now: dict[str, Any], noted: Collection[str]) -> dict[str, Any]:
    return {**now, **{name: before[name] for name in noted if name in before}}


def _refusal(folder: Path, before: dict[str, Any], now: dict[str, Any], wrong: list[str]) -> str:
    if before.get("run") != now["run"]:
        return f"{folder} holds a run of another kind ({before.get('run', 'unknown')}, not {now['run']}): {ANOTHER_FOLDER}"
    first, second = _flat(before), _flat(now)
    changed = [name for name in wrong if name.startswith(_DATA) and first.get(name) and second.get(name)]
    if changed:  # other hashes that differ follow from it
        files = ", ".join(_source(name.removeprefix(_DATA)) for name in changed[:_SHOWN])
        return f"{files} has changed since the run began ({folder}). Restore the file to resume, or {ANOTHER_FOLDER}"
    differences = ", ".join(f"{name} was {_shown(first, name)} and is now {_shown(second, name)}" for name in wrong[:_SHOWN])
    more = f", and {len(wrong) - _SHOWN} more differences" if len(wrong) > _SHOWN else ""
    return (
        f"{folder} holds another {now['run']}: {differences}{more}. Repeat the command as it was to resume, or {ANOTHER_FOLDER}"
    )


def _source(id: str) -> str:
    """The file that the environment ``id`` reads, or the id of a data set."""
    return id.removeprefix("data:").partition("?")[0] if id.startswith("data:") else f"the data of {id}"


def _shown(values: dict[str, Any], name: str) -> str:
    text = "none" if values.get(name) is None else encode_json(values[name]).decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
