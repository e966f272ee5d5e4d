"""Apache Parquet: one row per episode, with columns that any data tool can query, and without loss.

Token ids and log-probs are lists of four-byte items; turns and segments are lists of structs. Only data without a fixed shape
is JSON inside a column: ``info``, the ``params`` of a task, observations with pictures, and the calls of a foreign agent.
Reading returns equal trajectories.
The columns ``reward`` and ``success`` are for queries; the reader computes them again.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

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
    rows = (_row(writable(trajectory)) for trajectory in trajectories)
    with parquet.ParquetWriter(out, _schema(), compression="zstd") as writer:
        while batch := list(islice(rows, _ROWS)):
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


@cache
def _schema() -> Any:
    arrow = _pyarrow()
    text, integer, real = arrow.string(), arrow.int64(), arrow.float64()
    turn = {"observation": text, "observation_parts": text, "action": text, "reasoning": text, "finish": text, "reward": real}
    turn |= {"info": text, "act_seconds": real, "env_seconds": real}
    turn |= {"prompt_tokens": integer, "completion_tokens": integer, "dollars": real}
    span = arrow.struct({"start": integer, "stop": integer, "turn": integer, "version": integer})
    segment = {"ids": arrow.list_(arrow.int32()), "logprobs": arrow.list_(arrow.float32()), "spans": arrow.list_(span)}
    failure = {"boundary": text, "phase": text, "kind": text, "message": text, "attempt": integer, "detail": text}
    columns = {"env": text, "task_seed": integer, "index": integer, "split": text, "params": text}
    columns |= {
        "policy": text,
        "privileged": arrow.bool_(),
        "player": text,
        "stop": text,
        "reward": real,
        "success": arrow.bool_(),
    }
    columns |= {"turns": arrow.list_(arrow.struct(turn)), "segments": arrow.list_(arrow.struct(segment))}
    columns |= {"final_observation": text, "final_observation_parts": text, "info": text}
    columns |= {"failures": arrow.list_(arrow.struct(failure)), "seed": integer}
    columns |= {"group": integer, "member": integer, "attempt": integer, "seconds": real, "agent": text}
    return arrow.schema(list(columns.items()), metadata={_SCHEMA_KEY: str(SCHEMA_VERSION)})


# ----------------------------------------------------------------------------------------------------------------- to rows


def _row(trajectory: Trajectory) -> dict[str, Any]:
    task = trajectory.task
    return {
        "env": task.env,
        "task_seed": task.seed,
        "index": task.index,
        "split": task.split,
        "params": _json(dict(task.params)),
        "policy": trajectory.policy,
        "privileged": trajectory.privileged,
        "player": trajectory.player,
        "stop": trajectory.stop.value,
        "reward": trajectory.reward,
        "success": trajectory.success,
        "turns": [_turn_row(turn) for turn in trajectory.turns],
        "segments": [_segment_row(segment) for segment in trajectory.segments],
        **_content_row("final_observation", trajectory.final_observation),
        "info": _json(trajectory.info),
        "failures": [msgspec.to_builtins(failure) for failure in map(_whole, trajectory.failures)],
        "seed": trajectory.seed,
        "group": trajectory.group,
        "member": trajectory.member,
        "attempt": trajectory.attempt,
        "seconds": trajectory.seconds,
        "agent": encode_json(trajectory.agent).decode() if isinstance(trajectory.agent, AgentRecord) else None,
    }


def _turn_row(turn: Turn) -> dict[str, Any]:
    completion, usage = turn.completion, turn.completion.usage
    return {
        **_content_row("observation", turn.observation),
        "action": completion.text,
        "reasoning": completion.reasoning,
        "finish": completion.finish.value,
        "reward": turn.reward,
        "info": _json(turn.info),
        "act_seconds": turn.act_seconds,
        "env_seconds": turn.env_seconds,
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "completion_tokens": None if usage is None else usage.completion_tokens,
        "dollars": None if usage is None else usage.dollars,
    }


def _segment_row(segment: Segment) -> dict[str, Any]:
    spans = [{"start": s.start, "stop": s.stop, "turn": s.turn, "version": s.version} for s in segment.spans]
    return {"ids": np.asarray(segment.ids), "logprobs": np.asarray(segment.logprobs), "spans": spans}


def _content_row(name: str, content: Content) -> dict[str, str | None]:
    """Return plain text as it is, and mixed content as text for queries and as JSON for the reader."""
    return {name: text_of(content), f"{name}_parts": None if isinstance(content, str) else encode_json(content).decode()}


def _json(value: dict[str, Any]) -> str | None:
    return encode_json(value).decode() if value else None


def _whole(failure: Failure) -> dict[str, Any]:
    # The encoder of a failure omits fields with default values; a Parquet struct needs all of them.
    return {name: getattr(failure, name) for name in failure.__struct_fields__}


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
