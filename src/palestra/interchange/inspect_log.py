"""Logs of Inspect (inspect_ai, MIT): one JSON document per run, version 2 of its log schema, which ``inspect view`` opens.

An episode is a sample; its id names the task, and its epoch is the member of the group. Scores are ``reward`` (a number) and,
if the environment judges, ``success`` (C or I). A failed episode has an error and no scores. Fields that the format lacks (the
task, the stop reason, rewards and ``info`` of single turns) are in ``metadata.palestra`` and are read back. Token ids are left
out.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from palestra.errors import Boundary, SchemaError
from palestra.foundation.encoding import decode_json, encode_json
from palestra.interchange.dialogue import data_url, image_of_url, messages_of, trajectory_of
from palestra.trajectory import (
    Content,
    Failure,
    Finish,
    Image,
    Message,
    Phase,
    StopReason,
    Task,
    Text,
    ToolCall,
    Trajectory,
    text_of,
    writable,
)
from palestra.trajectory.calls import format_call

__all__ = ["LOG_VERSION", "LogHeader", "inspect_name", "read_inspect", "write_inspect"]

LOG_VERSION = 2
ENV = "import:inspect"
_STOPS = {Finish.STOP: "stop", Finish.LENGTH: "max_tokens", Finish.OVERFLOW: "model_length"}
_VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


@dataclass(frozen=True, kw_only=True)
class LogHeader:
    """The fields of a log that describe the whole run."""

    task: str
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    packages: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the reward: ``mean`` and the limits of its interval."""


# ----------------------------------------------------------------------------------------------------------------- writing


def inspect_name(header: LogHeader) -> str:
    """Return the file name under which Inspect's viewer lists a log: ``<timestamp>_<task>_<id>.json``.

    The id is a hash of the rest, so the same run always has the same name.
    """
    when = header.created.astimezone(UTC).strftime("%Y-%m-%dT%H-%M-%S+00-00")
    task = re.sub(r"[^A-Za-z0-9.-]+", "-", header.task).strip("-") or "run"
    id = hashlib.sha256(f"{when}_{header.task}".encode()).hexdigest()[:22]
    return f"{when}_{task}_{id}.json"


def write_inspect(trajectories: Iterable[Trajectory], out: Path, header: LogHeader) -> int:
    """Write all trajectories into one log, and return their number."""
    samples = [_sample(writable(trajectory)) for trajectory in trajectories]
    models = sorted({sample["output"]["model"] for sample in samples} - {""})
    out.write_bytes(encode_json({**_log(header, samples, ",".join(models) or "none"), "samples": samples}))
    return len(samples)


def _log(header: LogHeader, samples: list[dict[str, Any]], model: str) -> dict[str, Any]:
    when = header.created.astimezone(UTC).isoformat(timespec="seconds")
    scored = sum("scores" in sample for sample in samples)
    ids = sorted({sample["id"] for sample in samples})
    metrics = {name: {"name": name, "value": value} for name, value in header.metrics.items()}
    score = {"name": "reward", "scorer": "reward", "scored_samples": scored, "unscored_samples": len(samples) - scored}
    usages = [usage for sample in samples for usage in sample["model_usage"].values()]
    return {
        "version": LOG_VERSION,
        "status": "success",
        "eval": {
            "created": when,
            "task": header.task,
            "task_id": header.task,
            "run_id": header.task,
            "dataset": {"name": header.task, "samples": len(ids), "sample_ids": ids},
            "model": model,
            "config": {"epochs": max((sample["epoch"] for sample in samples), default=1)},
            "packages": dict(header.packages),
        },
        "plan": {"name": "palestra", "steps": []},
        "results": {
            "total_samples": len(samples),
            "completed_samples": scored,
            "scores": [{**score, "params": {}, "metrics": metrics}],
        },
        "stats": {"started_at": when, "completed_at": when, "model_usage": {model: _sum(usages)} if usages else {}},
    }


def _sum(usages: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(usage[name] for usage in usages) for name in ("input_tokens", "output_tokens", "total_tokens")}


def _sample(trajectory: Trajectory) -> dict[str, Any]:
    messages = [_message(message, trajectory.policy) for message in messages_of(trajectory)]
    first = trajectory.turns[0].observation if trajectory.turns else ""
    usage = _usage(trajectory)
    sample: dict[str, Any] = {
        "id": _sample_id(trajectory),
        "epoch": trajectory.member + 1,
        "input": text_of(first),
        "target": "",
        "messages": messages,
        "output": _output(trajectory, usage),
        "metadata": {"palestra": _own(trajectory)},
        "store": {},
        "events": [],
        "model_usage": {trajectory.policy: usage} if usage and trajectory.policy else {},
        "total_time": trajectory.seconds,
        "attachments": {},
    }
    if trajectory.stop.failed:
        told = trajectory.failures[-1] if trajectory.failures else None
        message = f"{told.boundary}: {told.kind}: {told.message}" if told else trajectory.stop.value
        return {**sample, "error": {"message": message, "traceback": told.detail if told else "", "traceback_ansi": ""}}
    scores: dict[str, Any] = {"reward": {"value": trajectory.reward}}
    if trajectory.success is not None:
        scores["success"] = {"value": "C" if trajectory.success else "I"}
    return {**sample, "scores": scores}


def _sample_id(trajectory: Trajectory) -> str:
    task = trajectory.task
    row = "" if task.index is None else f" row {task.index}"
    player = f" as {trajectory.player}" if trajectory.player else ""
    return f"{task.env} seed {task.seed}{row} group {trajectory.group}{player}"


def _message(message: Message, model: str) -> dict[str, Any]:
    if message.role != "assistant":
        return {"role": message.role, "content": _content(message.content), "source": "input"}
    text = text_of(message.content)
    content: str | list[dict[str, Any]] = text
    if message.reasoning:
        content = [{"type": "reasoning", "reasoning": message.reasoning}, {"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "source": "generate", "model": model}


def _content(content: Content) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": "image", "image": data_url(part)}
        for part in content
    ]


def _output(trajectory: Trajectory, usage: dict[str, int]) -> dict[str, Any]:
    if not trajectory.turns:
        return {"model": trajectory.policy, "choices": []}
    last = trajectory.turns[-1].completion
    message = _message(Message("assistant", last.text, last.reasoning), trajectory.policy)
    choice = {"message": message, "stop_reason": _STOPS.get(last.finish, "unknown")}
    output = {"model": trajectory.policy, "choices": [choice], "completion": last.text}
    return {**output, "usage": usage} if usage else output


def _usage(trajectory: Trajectory) -> dict[str, int]:
    usages = [turn.completion.usage for turn in trajectory.turns if turn.completion.usage is not None]
    if not usages:
        return {}
    sent = sum(usage.prompt_tokens for usage in usages)
    written = sum(usage.completion_tokens for usage in usages)
    return {"input_tokens": sent, "output_tokens": written, "total_tokens": sent + written}


def _own(trajectory: Trajectory) -> dict[str, Any]:
    names = ("task", "stop", "info", "group", "member", "player", "seed", "attempt", "privileged", "failures")
    turns = [{"reward": turn.reward, "info": turn.info, "finish": turn.completion.finish} for turn in trajectory.turns]
    return {**{name: getattr(trajectory, name) for name in names}, "turns": turns}


# ----------------------------------------------------------------------------------------------------------------- reading


class _InspectCall(msgspec.Struct):
    function: str
    arguments: dict[str, Any] = {}
    id: str = ""


class _InspectMessage(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] = ""
    tool_calls: list[_InspectCall] | None = None


class _Score(msgspec.Struct):
    value: Any


class _Error(msgspec.Struct):
    message: str
    traceback: str = ""


class _InspectTurn(msgspec.Struct):
    reward: float
    info: dict[str, Any]
    finish: Finish


class _Own(msgspec.Struct):
    task: Task
    stop: StopReason
    info: dict[str, Any]
    turns: list[_InspectTurn]
    failures: list[Failure] = []
    group: int = 0
    member: int = 0
    player: str = ""
    seed: int = 0
    attempt: int = 0
    privileged: bool = False


class _Metadata(msgspec.Struct):
    palestra: _Own | None = None


class _Sample(msgspec.Struct):
    id: int | str
    epoch: int = 1
    messages: list[_InspectMessage] = []
    scores: dict[str, _Score] | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    error: _Error | None = None
    total_time: float | None = None


class _Eval(msgspec.Struct):
    task: str
    model: str = ""


class _Log(msgspec.Struct):
    version: int
    eval: _Eval
    samples: list[_Sample] = []


def read_inspect(path: Path) -> Iterator[Trajectory]:
    """Yield the samples of a log in JSON. The first score that is a number or C, P, I or N becomes the last turn's reward."""
    try:
        log = decode_json(path.read_bytes(), _Log)
    except (SchemaError, UnicodeDecodeError) as error:
        raise SchemaError(
            f"{path} is not an Inspect log in JSON (`inspect log convert --to json` makes one): {error}"
        ) from None
    if log.version != LOG_VERSION:
        raise SchemaError(f"{path} is a log of version {log.version}, expected {LOG_VERSION}")
    groups: dict[int | str, int] = {}
    for sample in log.samples:
        yield _trajectory(sample, log.eval, groups.setdefault(sample.id, len(groups)))


def _trajectory(sample: _Sample, log: _Eval, group: int) -> Trajectory:
    extra = sample.metadata.palestra
    messages = [_read_message(message) for message in sample.messages]
    if extra is not None and len(extra.turns) == sum(message.role == "assistant" for message in messages):
        return _restored(extra, messages, sample, log.model)
    trajectory = trajectory_of(messages, Task(ENV, group, params={"task": log.task, "id": sample.id}), policy=log.model)
    trajectory = msgspec.structs.replace(trajectory, group=group, member=sample.epoch - 1, seconds=sample.total_time or 0.0)
    if sample.error is not None:
        failure = Failure(
            Boundary.INFRASTRUCTURE, Phase.STEP, "InspectError", sample.error.message, detail=sample.error.traceback
        )
        return msgspec.structs.replace(trajectory, failures=(failure,))
    value = _value(sample.scores or {})
    if value is None:
        return trajectory
    last = msgspec.structs.replace(trajectory.turns[-1], reward=value, info={"success": value >= 1.0})
    return msgspec.structs.replace(trajectory, stop=StopReason.TERMINATED, failures=(), turns=(*trajectory.turns[:-1], last))


def _restored(extra: _Own, messages: list[Message], sample: _Sample, model: str) -> Trajectory:
    """The fields that ``write_inspect`` adds."""
    bare = trajectory_of(messages, extra.task) if extra.turns else Trajectory(extra.task, extra.stop)
    turns = tuple(
        msgspec.structs.replace(
            turn, reward=was.reward, info=was.info, completion=msgspec.structs.replace(turn.completion, finish=was.finish)
        )
        for turn, was in zip(bare.turns, extra.turns, strict=True)
    )
    names = ("info", "group", "member", "player", "seed", "attempt", "privileged")
    identity: dict[str, Any] = {name: getattr(extra, name) for name in names}
    return Trajectory(
        extra.task,
        extra.stop,
        turns,
        final_observation=bare.final_observation,
        failures=tuple(extra.failures),
        policy=model,
        seconds=sample.total_time or 0.0,
        **identity,
    )


def _value(scores: Mapping[str, _Score]) -> float | None:
    for score in scores.values():
        if isinstance(score.value, bool | int | float):
            return float(score.value)
        if score.value in _VALUES:
            return _VALUES[score.value]
    return None


def _read_message(message: _InspectMessage) -> Message:
    role: Any = message.role if message.role in ("system", "user", "assistant", "tool") else "user"
    reasoning = ""
    parts: list[Text | Image] = []
    for part in [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content:
        if part.get("type") == "reasoning":
            reasoning += str(part.get("reasoning", ""))
        elif part.get("type") == "image":
            parts.append(image_of_url(str(part.get("image", ""))))
        else:
            parts.append(Text(str(part.get("text", f"[{part.get('type')}]"))))
    parts += [Text("\n" + format_call(ToolCall(call.function, call.arguments, call.id))) for call in message.tool_calls or ()]
    only_text = all(isinstance(part, Text) for part in parts)
    return Message(role, text_of(tuple(parts)) if only_text else tuple(parts), reasoning)
