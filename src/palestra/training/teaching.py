"""On-policy distillation: a teacher's log-probabilities of what the model sampled become advantages.

The model plays. For every sampled token the advantage is

    task · A + weight · (log π_teacher − log π_old),

where A is the advantage of ``advantage.method`` and π_old the model before the update. The mean of the difference over tokens
that the model samples is −KL(π ‖ π_teacher), so training lowers that KL where the model itself goes (reverse KL). With
``task = 0`` rewards are ignored.

A teacher is a function from a batch to the log-probability of every sampled token (T). ``local`` is a frozen model beside the
learner's, sharded over its ranks. ``vllm`` asks servers, which compute the log-probabilities of a prompt. Student and teacher
must have the same tokens.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from palestra.errors import UsageError
from palestra.foundation.encoding import Ints
from palestra.recipes.play import TeacherSettings
from palestra.training.algorithms.groups import Array
from palestra.training.learner.batch import Batch

if TYPE_CHECKING:
    from palestra.training.learner.learner import Learner

__all__ = [
    "Teacher",
    "TeacherSetup",
    "check_context",
    "local_teacher",
    "taught",
    "vllm_teacher",
]

Teacher = Callable[[Batch], Array]
"""Returns the log-probability of every sampled token of a batch under the teacher (T)."""
_CALLS = 64
"""Segments that servers score at the same time."""


class TeacherSetup(NamedTuple):
    """What a teacher is built from."""

    settings: TeacherSettings
    learner: "Learner"
    """The learner, which holds a local teacher."""
    deadline: float
    """Seconds that a server has to answer."""


def local_teacher(setup: TeacherSetup) -> Teacher:
    """The frozen model that the learner holds."""
    return setup.learner.measure_teacher


def vllm_teacher(setup: TeacherSetup) -> Teacher:
    """The vLLM servers at ``teacher.urls``."""

    def measure(batch: Batch) -> Array:
        # On the learner's thread, which has no event loop of its own.
        scores = asyncio.run(_scores(setup, batch.ids))
        return np.array([scores[segment][position] for segment, position in zip(batch.segments, batch.positions, strict=True)])

    return measure


async def check_context(settings: TeacherSettings | None, length: int, deadline: float) -> None:
    """Raise ``UsageError`` if the teacher's servers cannot score a segment of ``length`` tokens, the context of the engine.

    vLLM samples at least one token after every prompt, and refuses a prompt that leaves no room for it.
    """
    from palestra.inference.servers.vllm import VLLMEngine

    if settings is None or settings.name != "vllm":
        return
    engine = VLLMEngine(settings.urls, timeout=deadline)
    await engine.connect()
    await engine.close()
    if engine.context_length <= length:
        raise UsageError(
            f"the teacher's context of {engine.context_length} tokens must be longer than the {length} tokens of the engine: "
            f"start the teacher's servers with --max-model-len {length + 1} or more, or the engine's servers with a smaller one"
        )


async def _scores(setup: TeacherSetup, segments: Sequence[Ints]) -> list[Array]:
    from palestra.inference.servers.vllm import VLLMEngine

    places = asyncio.Semaphore(_CALLS)
    engine = VLLMEngine(setup.settings.urls, timeout=setup.deadline)

    async def score(ids: Ints) -> Array:
        async with places:
            return await engine.score(ids)

    try:
        await engine.connect()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(score(ids)) for ids in segments]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        await engine.close()
    return [task.result() for task in tasks]


def taught(batch: Batch, teacher: Teacher, settings: TeacherSettings) -> tuple[Batch, dict[str, float]]:
    """Return ``batch`` with the teacher's part of the advantages, and metrics. The batch must have been measured.

    A token whose log-probability under the teacher is not finite has no part of it.

    Raises:
        UsageError: The teacher does not return one number per sampled token.

    """
    assert batch.old is not None
    assert batch.advantages is not None
    scores = np.asarray(teacher(batch), dtype=np.float64)
    if scores.shape != batch.old.shape:
        raise UsageError(
            f"teacher.kind must return one log-probability per sampled token ({len(batch.old)}), got an array of shape "
            f"{scores.shape}"
        )
    apart = scores - batch.old
    finite = np.isfinite(apart)
    bounded = np.clip(np.where(finite, apart, 0.0), -settings.largest, settings.largest)
    advantages = settings.task * batch.advantages + settings.weight * bounded
    measured = {"teacher/not_finite": float((~finite).mean())} if len(finite) else {}
    if finite.any():
        measured["teacher/kl"] = float(-apart[finite].mean())
    return replace(batch, advantages=advantages), measured
