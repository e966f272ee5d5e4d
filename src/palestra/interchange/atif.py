"""ATIF, the Agent Trajectory Interchange Format of the Harbor framework (RFC 0001, Apache-2.0): one JSON document per episode.

The writer uses version 1.7; the reader accepts every 1.x. The first observation is a step of the user. Each action is a step of
the agent, and the next observation is the observation of that step. The reward, ``info`` and finish reason of a turn are in its
``extra.palestra``, sampled ids and log-probs in its ``metrics``. The ids of prompts are left out, because each would repeat all
earlier ones, so a trajectory that is read back has text and rewards but no segments. Pictures are files beside the documents.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from palestra.durable import Inside, write_whole
from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import decode_json, encode_json
from palestra.interchange.dialogue import SYSTEM, joined, not_scored
from palestra.trajectory import (
    Completion,
    Content,
    Finish,
    Image,
    StopReason,
    Task,
    Text,
    ToolCall,
    Trajectory,
    Turn,
    Usage,
    text_of,
    writable,
)
from palestra.trajectory.calls import format_call

__all__ = ["ATIF_VERSION", "read_atif", "write_atif"]

ATIF_VERSION = "ATIF-v1.7"
ENV = "import:atif"
_IDENTITY = ("task", "stop", "group", "member", "player", "seed", "attempt", "privileged")
_LOWEST = np.finfo(np.float32).min
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


# ----------------------------------------------------------------------------------------------------------------- writing


def write_atif(trajectories: Iterable[Trajectory], out: Path, *, agent_version: str = "unknown") -> int:
    """Write one document per episode that has a turn into the folder ``out``, and return their number."""
    inside = Inside(out)
    inside.mkdir()
    if any(not name.startswith(".") for name in inside.names()):  # hidden: the lock of the command that writes here
        raise UsageError(f"{out} is not empty: name another folder")
    written = 0
    for trajectory in trajectories:
        if trajectory.turns:
            name = f"{written:06d}"
            document = _document(writable(trajectory), _Pictures(inside, name), agent_version)
            write_whole(inside / f"{name}.json", msgspec.json.format(encode_json(document), indent=1))
            written += 1
    return written


class _Pictures:
    """Writes the pictures of one document, and returns their paths."""

    def __init__(self, folder: Inside, name: str) -> None:
        self._folder = folder
        self._name = name
        self._count = 0

    def content(self, content: Content) -> str | list[dict[str, Any]]:
        return content if isinstance(content, str) else [self._part(part) for part in content]

    def _part(self, part: Text | Image) -> dict[str, Any]:
        if isinstance(part, Text) or part.media_type not in _SUFFIXES:
            return {"type": "text", "text": text_of((part,))}
        path = f"{self._name}-{self._count}.{_SUFFIXES[part.media_type]}"
        self._count += 1
        write_whole(self._folder / path, part.data)
        return {"type": "image", "source": {"media_type": part.media_type, "path": path}}


def _document(trajectory: Trajectory, pictures: _Pictures, agent_version: str) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if isinstance(system := trajectory.info.get(SYSTEM), str):
        steps.append({"source": "system", "message": system})
    steps.append({"source": "user", "message": pictures.content(trajectory.turns[0].observation)})
    shown = [turn.observation for turn in trajectory.turns[1:]] + [trajectory.final_observation]
    for number, (turn, following) in enumerate(zip(trajectory.turns, shown, strict=True)):
        steps.append(_agent_step(trajectory, number, turn))
        if following:
            steps[-1]["observation"] = {"results": [{"content": pictures.content(following)}]}
    policy = trajectory.policy or "unknown"
    identity = {name: getattr(trajectory, name) for name in _IDENTITY}
    return {
        "schema_version": ATIF_VERSION,
        "session_id": f"{trajectory.task.env}-{trajectory.group}-{trajectory.member}",
        "agent": {"name": policy, "version": agent_version, "model_name": policy},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": _final_metrics(trajectory, len(steps)),
        "extra": {"palestra": {**identity, "reward": trajectory.reward, "info": trajectory.info}},
    }


def _agent_step(trajectory: Trajectory, number: int, turn: Turn) -> dict[str, Any]:
    completion = turn.completion
    step: dict[str, Any] = {"source": "agent", "message": completion.text}
    if completion.reasoning:
        step["reasoning_content"] = completion.reasoning
    metrics: dict[str, Any] = {}
    if (usage := completion.usage) is not None:
        metrics = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
        metrics |= {"cost_usd": usage.dollars} if usage.dollars else {}
    ids, logprobs = _sampled(trajectory, number)
    if ids:
        metrics |= {"completion_token_ids": ids, "logprobs": logprobs}
    if metrics:
        step["metrics"] = metrics
    step["extra"] = {"palestra": {"reward": turn.reward, "info": turn.info, "finish": completion.finish}}
    return step


def _sampled(trajectory: Trajectory, turn: int) -> tuple[list[int], list[float]]:
    """Return the ids and log-probs that were sampled in ``turn``, over all segments."""
    ids: list[int] = []
    logprobs: list[float] = []
    for segment in trajectory.segments:
        before = 0
        for span in segment.spans:
            length = span.stop - span.start
            if span.turn == turn:
                ids += segment.ids[span.start : span.stop].tolist()
                # JSON has no infinity: a token with probability 0 gets the lowest float.
                logprobs += np.maximum(segment.logprobs[before : before + length], _LOWEST).tolist()
            before += length
    return ids, logprobs


def _final_metrics(trajectory: Trajectory, steps: int) -> dict[str, Any]:
    usages = [turn.completion.usage for turn in trajectory.turns if turn.completion.usage is not None]
    totals: dict[str, Any] = {"total_steps": steps, "extra": {"reward": trajectory.reward, "success": trajectory.success}}
    if usages:
        totals["total_prompt_tokens"] = sum(usage.prompt_tokens for usage in usages)
        totals["total_completion_tokens"] = sum(usage.completion_tokens for usage in usages)
        totals["total_cost_usd"] = sum(usage.dollars for usage in usages)
    return totals


# ----------------------------------------------------------------------------------------------------------------- reading


class _AtifResult(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None


class _Observation(msgspec.Struct):
    results: list[_AtifResult] = []


class _AtifMetrics(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None


class _AtifTurn(msgspec.Struct):
    reward: float = 0.0
    info: dict[str, Any] = {}
    finish: Finish = Finish.STOP


class _OwnEpisode(msgspec.Struct):
    task: Task
    stop: StopReason
    info: dict[str, Any] = {}
    group: int = 0
    member: int = 0
    player: str = ""
    seed: int = 0
    attempt: int = 0
    privileged: bool = False


class _StepExtra(msgspec.Struct):
    palestra: _AtifTurn | None = None


class _Extra(msgspec.Struct):
    palestra: _OwnEpisode | None = None


class _Step(msgspec.Struct):
    source: str
    message: str | list[dict[str, Any]] = ""
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    observation: _Observation | None = None
    metrics: _AtifMetrics | None = None
    extra: _StepExtra | None = None


class _Agent(msgspec.Struct):
    name: str
    model_name: str | None = None


class _Document(msgspec.Struct):
    schema_version: str
    agent: _Agent
    steps: list[_Step]
    extra: _Extra | None = None


def read_atif(path: Path) -> Iterator[Trajectory]:
    """Yield the episodes of a document or of all documents in a folder. Only documents of ``write_atif`` have scores."""
    beside = Inside(path if path.is_dir() else path.parent)
    files: list[Path | Inside] = [path]
    if path.is_dir():
        files = [beside / name for name in beside.names() if name.endswith(".json") and not name.startswith(".")]
    if not files:
        raise UsageError(f"there is no ATIF document (*.json) in {path}")
    for number, file in enumerate(files):
        try:
            document = decode_json(file.read_bytes(), _Document)
            if not document.schema_version.startswith("ATIF-v1."):
                raise SchemaError(f"version {document.schema_version}, expected ATIF-v1.x")
            yield _trajectory(document, number, beside)
        except SchemaError as error:
            raise SchemaError(f"{file} is not an ATIF trajectory: {error}") from None


def _trajectory(document: _Document, number: int, folder: Inside) -> Trajectory:
    turns: list[Turn] = []
    system: list[str] = []
    heard: list[Content] = []
    for step in document.steps:
        if step.source == "agent":
            turns.append(_turn(step, joined(heard)))
            heard = []
        elif step.source == "system":
            system.append(text_of(_content(step.message, folder)))
        else:
            heard.append(_content(step.message, folder))
        if step.observation is not None:
            heard += [_content(result.content or "", folder) for result in step.observation.results]
    if not turns:
        raise SchemaError("the document has no step of the agent")
    policy = document.agent.model_name or document.agent.name
    extra = document.extra.palestra if document.extra else None
    info: dict[str, Any] = {SYSTEM: "\n\n".join(system)} if system else {}
    if extra is None:
        bare = Trajectory(Task(ENV, number), StopReason.TERMINATED, tuple(turns), (), joined(heard), info)
        return not_scored(bare, policy)
    identity: dict[str, Any] = {name: getattr(extra, name) for name in _IDENTITY[2:]}
    return Trajectory(extra.task, extra.stop, tuple(turns), (), joined(heard), extra.info, policy=policy, **identity)


def _turn(step: _Step, observation: Content) -> Turn:
    extra = (step.extra.palestra if step.extra else None) or _AtifTurn()
    usage = None
    if (metrics := step.metrics) is not None and metrics.prompt_tokens is not None:
        usage = Usage(metrics.prompt_tokens, metrics.completion_tokens or 0, metrics.cost_usd or 0.0)
    text = text_of(_content(step.message, None))
    if step.tool_calls:
        text = "\n".join([*([text] if text else []), *(_call(call) for call in step.tool_calls)])
    completion = Completion(text, extra.finish, step.reasoning_content or "", usage=usage)
    return Turn(observation, completion, extra.reward, extra.info)


def _call(call: dict[str, Any]) -> str:
    arguments = call.get("arguments")
    named_arguments = arguments if isinstance(arguments, dict) else {"arguments": arguments}
    return format_call(ToolCall(str(call.get("function_name", "")), named_arguments, str(call.get("tool_call_id", ""))))


def _content(content: str | list[dict[str, Any]], folder: Inside | None) -> Content:
    if isinstance(content, str):
        return content
    return tuple(_part(part, folder) for part in content)


def _part(part: dict[str, Any], folder: Inside | None) -> Text | Image:
    if part.get("type") != "image":
        return Text(str(part.get("text", f"[{part.get('type')}]")))
    source = part.get("source") or {}
    name = str(source.get("path", ""))
    # A document from a stranger may name any file of this machine: only files beside it are read, and no links.
    if folder is None or not name or "/" in name or name in (".", "..") or not (folder / name).exists():
        return Text(f"[image at {name}]")
    return Image((folder / name).read_bytes(), str(source.get("media_type", "image/png")))
