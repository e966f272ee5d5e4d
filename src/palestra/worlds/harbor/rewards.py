"""What a verifier has written: ``/logs/verifier/reward.json``, else ``reward.txt``.

A reward is a finite number. Anything else (no file, an empty file, text, NaN) means that the verifier has failed. That is a
``GraderError``, and the episode has no reward: 0 would say that the agent has failed.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence

from palestra.errors import GraderError

__all__ = ["REWARD_JSON", "REWARD_TEXT", "combined", "passes", "read_rewards", "scalar"]

REWARD_JSON = "logs/verifier/reward.json"
REWARD_TEXT = "logs/verifier/reward.txt"


def read_rewards(fetch: Callable[[str], bytes]) -> dict[str, float]:
    """Return the rewards by name; ``reward`` is the name of the number in ``reward.txt``.

    Args:
        fetch: Returns a file of the verifier's box, or raises ``OSError``.
    """
    for path, parse in ((REWARD_JSON, _of_json), (REWARD_TEXT, _of_text)):
        try:
            text = fetch(path).decode()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise GraderError(f"the verifier's file /{path} cannot be read: {error}") from None
        if not text.strip():
            raise GraderError(f"the verifier's file /{path} is empty")
        return parse(path, text)
    raise GraderError(f"the verifier has written neither /{REWARD_JSON} nor /{REWARD_TEXT}")


def _of_json(path: str, text: str) -> dict[str, float]:
    try:
        rewards = json.loads(text)
    except (ValueError, RecursionError):
        raise GraderError(f"the verifier's file /{path} is not JSON") from None
    if not isinstance(rewards, dict) or not rewards:
        raise GraderError(f"the verifier's file /{path} is not an object of names and numbers")
    for name, value in rewards.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise GraderError(f'the verifier\'s file /{path}: "{name}" is not a number')
    return {name: _finite(path, value) for name, value in rewards.items()}


def _of_text(path: str, text: str) -> dict[str, float]:
    try:
        value = float(text)
    except ValueError:
        raise GraderError(f'the verifier\'s file /{path} is not a number: "{text.strip()[:80]}"') from None
    return {"reward": _finite(path, value)}


def _finite(path: str, value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise GraderError(f"the verifier's file /{path} has a reward that is not finite")
    return number


def scalar(rewards: Mapping[str, float], key: str = "") -> float:
    """Return the one number for training: ``key``, or ``reward``, or the only one there is."""
    wanted = key or ("reward" if len(rewards) != 1 else next(iter(rewards)))
    if wanted not in rewards:
        raise GraderError(f'the verifier gave no reward "{wanted}" but {", ".join(rewards)}: choose one with ?reward=NAME')
    return rewards[wanted]


def passes(rewards: Mapping[str, float], least: float | Mapping[str, float] | None) -> bool:
    """Return whether the rewards of a step reach its ``min_reward``."""
    wanted = {} if least is None else {"reward": least} if isinstance(least, int | float) else least
    return all(rewards.get(name, -math.inf) >= bound for name, bound in wanted.items())


def combined(steps: Sequence[Mapping[str, float]], strategy: str | None) -> dict[str, float]:
    """Return the rewards of a task: the mean over its steps, where a missing name counts as 0, or those of the last step."""
    if strategy == "final" or len(steps) == 1:
        return dict(steps[-1])
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: sum(step.get(name, 0.0) for step in steps) / len(steps) for name in names}
