"""Code shared by the adapters in which Palestra plays the episode and the trainer takes one sequence of tokens.

``play_sequence`` plays a task on the trainer's own sampling call. ``only_sequence`` returns the tokens, and refuses an episode
of several segments: the model saw them as separate contexts, so merging them would train on contexts that never occurred.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any

from palestra.core import Renderer, Sampling
from palestra.errors import InfrastructureError, UsageError
from palestra.foundation.encoding import Ints
from palestra.inference.engines.calls import CallEngine
from palestra.policies.sampled import SampledPolicy
from palestra.rollouts import play
from palestra.trajectory import FlatSegment, Task, Trajectory, flatten

__all__ = [
    "appending_renderer",
    "exact_text",
    "note_failures",
    "only_sequence",
    "play_sequence",
    "scored",
]


_log = logging.getLogger("palestra.bridges")


@lru_cache(maxsize=8)
def appending_renderer(tokenizer: Any) -> Renderer:
    """Return the renderer of ``tokenizer`` that keeps all sampled text in the context. It is proved once per tokenizer."""
    from palestra.inference.rendering import renderer_for

    return renderer_for(tokenizer, append_only=True)


def exact_text(tokenizer: Any, ids: Ints, trainer: str) -> str:
    """Return the text of ``ids``, for a trainer that exchanges text and encodes it again.

    Raises:
        UsageError: The trainer would encode the text to other ids.
    """
    text: str = tokenizer.decode(ids, skip_special_tokens=False)
    if list(tokenizer.encode(text, add_special_tokens=False)) != ids.tolist():
        raise UsageError(
            f"{trainer} exchanges text, and its tokenizer encodes this prompt to other ids than the chat template: "
            f"use a bridge that exchanges ids, or another tokenizer"
        )
    return text


async def play_sequence(
    task: Task,
    call: Callable[[list[int], Sampling], Awaitable[Any]],
    renderer: Renderer,
    *,
    max_tokens: int,
    context_length: int,
    response_length: int | None = None,
    **options: Any,
) -> Trajectory:
    """Play ``task`` on ``await call(prompt_ids, sampling)``, and return the trajectory.

    Args:
        task: The task.
        call: Samples, as for ``CallEngine``.
        renderer: The renderer of the trainer's tokenizer.
        max_tokens: The token limit of one turn.
        context_length: The token limit of the episode.
        response_length: The token limit of everything after the first prompt.
        options: Further keywords of ``palestra.play``, such as ``deadline``.
    """

    async def limited(prompt_ids: list[int], sampling: Sampling) -> Any:
        if response_length is not None:
            # The first prompt is the shortest, so its call sets the limit of the episode.
            engine.context_length = min(engine.context_length, len(prompt_ids) + response_length)
        return await call(prompt_ids, sampling)

    engine = CallEngine(limited, context_length=context_length)
    limit = max_tokens if response_length is None else min(max_tokens, response_length)
    return await play(task, SampledPolicy(renderer, engine, Sampling(max_tokens=limit)), **options)


def only_sequence(trajectory: Trajectory, trainer: str) -> FlatSegment:
    """Return the only segment of ``trajectory``.

    Raises:
        UsageError: There are several segments, or no token was sampled because the first prompt leaves no room.
    """
    flats = flatten(trajectory)
    if len(flats) > 1:
        raise UsageError(
            f'an episode of "{trajectory.task.env}" has {len(flats)} segments, and {trainer} takes one sequence per episode: '
            f"use a renderer with append_only=True and a history that keeps all messages"
        )
    if not flats:
        raise UsageError(f"{trajectory.task} has no sampled token ({trajectory.stop}): raise the length limits of {trainer}")
    return flats[0]


def note_failures(played: Sequence[Trajectory], trainer: str) -> None:
    """Log how many episodes of a batch failed, and the last reason.

    Raises:
        InfrastructureError: All of them failed. A setting is wrong, or a server is gone: training would continue with nothing.
    """
    failed = [trajectory for trajectory in played if trajectory.stop.failed]
    if not failed:
        return
    why = failed[-1].failures[-1].message if failed[-1].failures else str(failed[-1].stop)
    if len(failed) == len(played) > 1:
        raise InfrastructureError(f"all {len(played)} episodes of a batch for {trainer} failed; the last one: {why}")
    _log.warning("%d of %d episodes for %s failed; the last one: %s", len(failed), len(played), trainer, why)


def scored(trajectory: Trajectory, trainer: str) -> float:
    """Return the reward of ``trajectory``.

    Raises:
        InfrastructureError: The episode failed, so it has no reward, and ``trainer`` cannot leave it out.
    """
    if trajectory.reward is None or trajectory.stop.failed:
        why = trajectory.failures[-1].message if trajectory.failures else str(trajectory.stop)
        raise InfrastructureError(
            f"{trajectory.task} failed, and {trainer} cannot record an episode without a reward; 0 would be wrong: {why}"
        )
    return trajectory.reward
