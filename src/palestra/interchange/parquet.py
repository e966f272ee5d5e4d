"""Apache Parquet: one row per episode, with columns that any data tool can query, and without loss.

Token ids and log-probs are lists of four-byte items; turns and segments are lists of structs. Only data without a fixed shape
is JSON inside a column: ``info``, the ``params`` of a task, observations with pictures, and the calls of a foreign agent.
Reading returns equal trajectories.
The columns ``reward`` and ``success`` are for queries; the reader computes them again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from palestra.errors import MissingExtra, SchemaError
from palestra.foundation.encoding import decode_json, encode_json, floats, ints
from palestra.foundation.installation import how_to_install
from palestra.trajectory import (
    SCHEMA_VERSION,
    AgentRecord,
    Completion,
    Content,
    Failure,
    Finish,
    Part,
    Segment,
    Span,
    StopReason,
    Task,
    Trajectory,
    Turn,
    Usage,
    text_of,
    writable,
)

__all__ = ["read_parquet", "write_parquet"]

_ROWS = 256
"""Number of episodes in memory at the same time."""
_PLAIN = ("player", "policy", "privileged", "seed", "group", "member", "attempt", "seconds")
_SCHEMA_KEY = b"palestra.schema"


def write_parquet(trajectories: Iterable[Trajectory], out: Path) -> int:
    """Write all trajectories, and return their number."""
    arrow = _pyarrow()
    import pyarrow.parquet as parquet

    written = 0
    episodes = map(writable, trajectories)
    with parquet.ParquetWriter(out, _schema(), compression="zstd") as writer:
        while batch := _rows(_TRAJECTORY, islice(episodes, _ROWS)):
            writer.write_table(arrow.Table.from_pylist(batch, schema=_schema()))
            written += len(batch)
    return written


def read_parquet(path: Path) -> Iterator[Trajectory]:
    """Yield the trajectories of a file that ``write_parquet`` wrote."""
    arrow = _pyarrow()
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(path)
    except (arrow.ArrowInvalid, OSError) as error:
        raise SchemaError(f"{path} is not a Parquet file: {error}") from None
    with file:
        version = (file.schema_arrow.metadata or {}).get(_SCHEMA_KEY, b"none").decode()
        if version != str(SCHEMA_VERSION):
            raise SchemaError(f"{path} has trajectories of schema {version}, this version of palestra reads {SCHEMA_VERSION}")
        for batch in file.iter_batches(batch_size=_ROWS):
            yield from map(_trajectory, batch.to_pylist())


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra(f"Parquet needs pyarrow: {how_to_install('data')}") from None
    return pyarrow


class _Column(NamedTuple):
    """A column of the file, or a field of a struct inside of one."""

    kind: "_Kind"
    value: Callable[[Any], Any]
    """Return what the column holds of a trajectory, turn, segment, span or failure."""


_Table = Mapping[str, _Column]
_Kind = str | list[Any] | _Table
"""A type of Arrow by its name; a list with the kind of its items; or the fields of a struct."""


def _json(value: Mapping[str, Any]) -> str | None:
    return encode_json(value).decode() if value else None


def _parts(content: Content) -> str | None:
    return None if isinstance(content, str) else encode_json(content).decode()


def _usage(name: str) -> Callable[[Turn], Any]:
    return lambda turn: None if (usage := turn.completion.usage) is None else getattr(usage, name)


# The tables are both the schema and the writer. Mixed content stands as text for queries, and as JSON for the reader.
_TURN: _Table = {
    "observation": _Column("string", lambda turn: text_of(turn.observation)),
    "observation_parts": _Column("string", lambda turn: _parts(turn.observation)),
    "action": _Column("string", lambda turn: turn.completion.text),
    "reasoning": _Column("string", lambda turn: turn.completion.reasoning),
    "finish": _Column("string", lambda turn: turn.completion.finish.value),
    "reward": _Column("float64", attrgetter("reward")),
    "info": _Column("string", lambda turn: _json(turn.info)),
    "act_seconds": _Column("float64", attrgetter("act_seconds")),
    "env_seconds": _Column("float64", attrgetter("env_seconds")),
    "prompt_tokens": _Column("int64", _usage("prompt_tokens")),
    "completion_tokens": _Column("int64", _usage("completion_tokens")),
    "dollars": _Column("float64", _usage("dollars")),
}
_SPAN: _Table = {name: _Column("int64", attrgetter(name)) for name in ("start", "stop", "turn", "version")}
_SEGMENT: _Table = {
    "ids": _Column(["int32"], lambda segment: np.asarray(segment.ids)),
    "logprobs": _Column(["float32"], lambda segment: np.asarray(segment.logprobs)),
    "spans": _Column([_SPAN], lambda segment: _rows(_SPAN, segment.spans)),
}
_FAILURE: _Table = {
    "boundary": _Column("string", lambda failure: failure.boundary.value),
    "phase": _Column("string", lambda failure: failure.phase.value),
    "kind": _Column("string", attrgetter("kind")),
    "message": _Column("string", attrgetter("message")),
    "attempt": _Column("int64", attrgetter("attempt")),
    "detail": _Column("string", attrgetter("detail")),
}
_TRAJECTORY: _Table = {
    "env": _Column("string", attrgetter("task.env")),
    "task_seed": _Column("int64", attrgetter("task.seed")),
    "index": _Column("int64", attrgetter("task.index")),
    "split": _Column("string", attrgetter("task.split")),
    "params": _Column("string", lambda trajectory: _json(dict(trajectory.task.params))),
    "policy": _Column("string", attrgetter("policy")),
    "privileged": _Column("bool_", attrgetter("privileged")),
    "player": _Column("string", attrgetter("player")),
    "stop": _Column("string", attrgetter("stop.value")),
    "reward": _Column("float64", attrgetter("reward")),
    "success": _Column("bool_", attrgetter("success")),
    "turns": _Column([_TURN], lambda trajectory: _rows(_TURN, trajectory.turns)),
    "segments": _Column([_SEGMENT], lambda trajectory: _rows(_SEGMENT, trajectory.segments)),
    "final_observation": _Column("string", lambda trajectory: text_of(trajectory.final_observation)),
    "final_observation_parts": _Column("string", lambda trajectory: _parts(trajectory.final_observation)),
    "info": _Column("string", lambda trajectory: _json(trajectory.info)),
    "failures": _Column([_FAILURE], lambda trajectory: _rows(_FAILURE, trajectory.failures)),
    "seed": _Column("int64", attrgetter("seed")),
    "group": _Column("int64", attrgetter("group")),
    "member": _Column("int64", attrgetter("member")),
    "attempt": _Column("int64", attrgetter("attempt")),
    "seconds": _Column("float64", attrgetter("seconds")),
    "agent": _Column(
        "string", lambda trajectory: encode_json(agent).decode() if isinstance(agent := trajectory.agent, AgentRecord) else None
    ),
}


def _rows(table: _Table, entries: Iterable[Any]) -> list[dict[str, Any]]:
    return [{name: column.value(entry) for name, column in table.items()} for entry in entries]


@cache
def _schema() -> Any:
    columns = [(name, _arrow_type(column.kind)) for name, column in _TRAJECTORY.items()]
    return _pyarrow().schema(columns, metadata={_SCHEMA_KEY: str(SCHEMA_VERSION)})


def _arrow_type(kind: _Kind) -> Any:
    arrow = _pyarrow()
    if isinstance(kind, str):
        return getattr(arrow, kind)()
    if isinstance(kind, list):
        return arrow.list_(_arrow_type(kind[0]))
    return arrow.struct({name: _arrow_type(column.kind) for name, column in kind.items()})


# --------------------------------------------------------------------------------------------------------------- from rows


def _trajectory(row: dict[str, Any]) -> Trajectory:
    try:
        params = _from_json(row["params"])
        return Trajectory(
            task=Task(row["env"], row["task_seed"], row["index"], row["split"], params),
            stop=StopReason(row["stop"]),
            turns=tuple(_turn(turn) for turn in row["turns"]),
            segments=tuple(_segment(segment) for segment in row["segments"]),
            final_observation=_content("final_observation", row),
            info=_from_json(row["info"]),
            failures=tuple(msgspec.convert(failure, Failure) for failure in row["failures"]),
            agent=msgspec.UNSET if row["agent"] is None else decode_json(row["agent"], AgentRecord),
            **{name: row[name] for name in _PLAIN},
        )
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise SchemaError(f"a row is not a trajectory: {type(error).__name__}: {error}") from None


def _turn(row: dict[str, Any]) -> Turn:
    usage = None if row["prompt_tokens"] is None else Usage(row["prompt_tokens"], row["completion_tokens"], row["dollars"])
    completion = Completion(row["action"], Finish(row["finish"]), row["reasoning"], usage=usage)
    clock = row["act_seconds"], row["env_seconds"]
    return Turn(_content("observation", row), completion, row["reward"], _from_json(row["info"]), *clock)


def _segment(row: dict[str, Any]) -> Segment:
    return Segment(ints(row["ids"]), tuple(Span(**span) for span in row["spans"]), floats(row["logprobs"]))


def _content(name: str, row: dict[str, Any]) -> Content:
    parts = row[f"{name}_parts"]
    text: str = row[name]
    return text if parts is None else decode_json(parts, tuple[Part, ...])


def _from_json(text: str | None) -> dict[str, Any]:
    return {} if text is None else decode_json(text, dict[str, Any])
