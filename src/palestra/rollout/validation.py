"""What an environment returned, held against the contract. Rollouts, vectors and the server use the same functions."""

from typing import Any

from palestra.core import Step
from palestra.errors import EnvError
from palestra.trajectory import LARGEST_REWARD, Content, Image, Text, opening_of

__all__ = ["checked_reset", "checked_reward", "checked_step"]


def checked_reset(result: Any) -> tuple[Content, dict[str, Any]]:
    """The observation and the info of a reset; ``EnvError`` if ``result`` breaks the contract."""
    try:
        observation, info = result
    except (TypeError, ValueError):
        raise EnvError(f"reset() must return an observation and a dict, got {result!r:.200}") from None
    if not isinstance(info, dict):
        raise EnvError(f"reset() must return a dict as info, got a {type(info).__name__}")
    try:
        opening_of(info)
    except ValueError as error:
        raise EnvError(str(error)) from None
    return _content(observation), dict(info)


def checked_step(step: Any) -> Step:
    """The five values of a step; ``EnvError`` if ``step`` breaks the contract."""
    try:
        observation, reward, terminated, truncated, info = step
    except (TypeError, ValueError):
        raise EnvError(f"step() must return five values, got {step!r:.200}") from None
    if not isinstance(info, dict):
        raise EnvError(f"step() must return a dict as info, got a {type(info).__name__}")
    # A copy of info, because some environments return the same dict at every step.
    return Step(_content(observation), checked_reward(reward), bool(terminated), bool(truncated), dict(info))


def checked_reward(reward: object) -> float:
    """``reward`` as a float; ``EnvError`` if it is not a number within bounds."""
    try:
        number = float(reward)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise EnvError(f"a reward must be a number, got {reward!r:.200}") from None
    if not -LARGEST_REWARD <= number <= LARGEST_REWARD:  # also refuses NaN
        raise EnvError(f"a reward must be a number from -{LARGEST_REWARD:g} to {LARGEST_REWARD:g}, got {number}")
    return number


def _content(observation: Any) -> Content:
    if isinstance(observation, str):
        return observation
    if isinstance(observation, tuple) and all(isinstance(part, Text | Image) for part in observation):
        return observation
    raise EnvError(f"an observation is text, or a tuple of Text and Image, got {observation!r:.200}")
