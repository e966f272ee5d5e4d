"""The door: what an environment or a policy returned is a stranger's data. It is checked and copied here, once.

``checked_*`` holds a result against the contract: rollouts, vectors and the server use the same functions. ``kept_*`` checks as
well, and copies the result for a record: text that can be written, numbers that are numbers, containers that nobody else holds.
What cannot be kept raises an ``EnvError`` or a ``PolicyError``, which is the failure of its author. A live object inside of
``info`` is not kept and is no failure: the name of its type replaces it, as in a file.

The rules are listed in docs/design/strangers.md.
"""

import dataclasses
import enum
import math
import operator
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from palestra.core import Step
from palestra.errors import EnvError, PolicyError, SchemaError
from palestra.foundation.encoding import (
    UNWRITABLE,
    Floats,
    Ints,
    clean_text,
    decode_json,
    decode_msgpack,
    encode_json,
    encode_msgpack,
    shown,
    type_name,
)
from palestra.foundation.encoding import floats as floats_of
from palestra.foundation.encoding import ints as ints_of
from palestra.trajectory import (
    LARGEST_REWARD,
    AgentRecord,
    Completion,
    Content,
    Finish,
    Image,
    PlayedRecord,
    Segment,
    Text,
    Tokens,
    Usage,
    message_of,
    opening_of,
)

__all__ = [
    "DEEPEST",
    "MOST_ITEMS",
    "check_bounds",
    "checked_payments",
    "checked_player",
    "checked_reset",
    "checked_reward",
    "checked_step",
    "is_plain",
    "kept_completion",
    "kept_played",
    "kept_reset",
    "kept_step",
    "kept_tools",
]

DEEPEST = 128
"""Containers inside of ``info`` may be nested this deep. A container that contains itself is nested deeper."""
MOST_ITEMS = 200_000
"""Items that one ``info`` may hold, in all of its containers together."""

_LARGEST_COUNT = 2**53
"""Largest count of tokens, calls and the like: every reader of JSON holds it exactly."""


# ------------------------------------------------------------------------------------------------------- environments


def checked_reset(result: Any) -> tuple[Content, dict[str, Any]]:
    """The observation and the info of a reset; ``EnvError`` if ``result`` breaks the contract."""
    observation, info = _pair(result)
    _check_opening(info)
    return _content(observation), dict(info)


def checked_step(step: Any) -> Step:
    """The five values of a step; ``EnvError`` if ``step`` breaks the contract."""
    try:
        observation, reward, terminated, truncated, info = step
    except (TypeError, ValueError):
        raise EnvError(f"step() must return five values, got {shown(step)}") from None
    if not isinstance(info, dict):
        raise EnvError(f"step() must return a dict as info, got a {type(info).__name__}")
    # A copy of info, because some environments return the same dict at every step.
    return Step(_content(observation), checked_reward(reward), _flag(terminated), _flag(truncated), dict(info))


def kept_reset(result: Any) -> tuple[Content, dict[str, Any]]:
    """``checked_reset``, with an info that nobody else holds and that can be written."""
    observation, info = _pair(result)
    info = _kept_info(info)
    _check_opening(info)
    return _content(observation), info


def kept_step(step: Any) -> tuple[Content, float, bool, bool, dict[str, Any]]:
    """The values of ``checked_step``, with an info that nobody else holds and that can be written.

    This is called once per turn of every episode. What is exactly as the contract says passes with one comparison per value.
    """
    try:
        observation, reward, terminated, truncated, info = step
    except (TypeError, ValueError):
        raise EnvError(f"step() must return five values, got {shown(step)}") from None
    if type(observation) is not str or not observation.isascii():
        observation = _content(observation)
    if type(reward) is not float or not -LARGEST_REWARD <= reward <= LARGEST_REWARD:
        reward = checked_reward(reward)
    if terminated is not False and terminated is not True:
        terminated = _flag(terminated)
    if truncated is not False and truncated is not True:
        truncated = _flag(truncated)
    if not isinstance(info, dict):
        raise EnvError(f"step() must return a dict as info, got a {type(info).__name__}")
    return observation, reward, terminated, truncated, _kept_info(info) if info else {}


def checked_reward(reward: object) -> float:
    """``reward`` as a float; ``EnvError`` if it is not a number within bounds."""
    try:
        if isinstance(reward, str | bytes | bytearray):
            raise TypeError
        number = float(reward)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise EnvError(f"a reward must be a number, got {shown(reward)}") from None
    if not -LARGEST_REWARD <= number <= LARGEST_REWARD:  # also refuses NaN
        raise EnvError(f"a reward must be a number from -{LARGEST_REWARD:g} to {LARGEST_REWARD:g}, got {number}")
    return number


def checked_player(info: Mapping[str, Any]) -> str:
    """The player who acts next, from an info that was kept; empty in an episode of one player."""
    player = info.get("player", "")
    if type(player) is not str:
        raise EnvError(f"info['player'] must be the name of a player, got {shown(player)}")
    return player


def checked_payments(info: Mapping[str, Any]) -> dict[str, float]:
    """Player → reward, from ``info["rewards"]`` of an info that was kept."""
    payments = info.get("rewards", {})
    if type(payments) is not dict:
        raise EnvError(f"info['rewards'] must be a dict of players and their rewards, got {shown(payments)}")
    return {player: checked_reward(reward) for player, reward in payments.items()}


def kept_tools(info: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The schemas of the tools that an info offers, if it offers any. A dict under ``tools`` says how calls went."""
    offered = info.get("tools")
    if type(offered) is not list:
        return None
    if not all(type(schema) is dict for schema in offered):
        raise EnvError(f"info['tools'] must be a list of schemas, which are dicts, got {shown(offered)}")
    # Another copy: the policy gets it, and may change it.
    return _copied(offered, 0, _Left())  # type: ignore[no-any-return]


def _pair(result: Any) -> tuple[Any, dict[str, Any]]:
    try:
        observation, info = result
    except (TypeError, ValueError):
        raise EnvError(f"reset() must return an observation and a dict, got {shown(result)}") from None
    if not isinstance(info, dict):
        raise EnvError(f"reset() must return a dict as info, got a {type(info).__name__}")
    return observation, info


def _check_opening(info: Mapping[str, Any]) -> None:
    try:
        opening_of(info)
    except ValueError as error:
        raise EnvError(str(error)) from None


def _flag(value: Any) -> bool:
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return bool(value)
    raise EnvError(f"terminated and truncated must be True or False, got {shown(value)}")


def _content(observation: Any) -> Content:
    if isinstance(observation, str):
        return clean_text(str.__str__(observation))
    if isinstance(observation, tuple) and all(map(_is_part, tuple.__iter__(observation))):
        return tuple(_kept_part(part) for part in tuple.__iter__(observation))
    raise EnvError(f"an observation is text, or a tuple of Text and Image, got {shown(observation)}")


def _is_part(part: Any) -> bool:
    # The types of this package hold whatever they were made with.
    if isinstance(part, Text):
        return isinstance(part.text, str)
    return isinstance(part, Image) and all(map(isinstance, (part.data, part.media_type), (bytes, str)))


def _kept_part(part: Text | Image) -> Text | Image:
    if isinstance(part, Text):
        return Text(clean_text(str.__str__(part.text)))
    return Image(bytes(part.data), clean_text(str.__str__(part.media_type)))


def _kept_info(info: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = _copied(info, 0, _Left())
    if "success" in kept:
        verdict = kept["success"]
        if verdict is not None and (type(verdict) not in (bool, int, float) or not math.isfinite(verdict)):
            raise EnvError(f"info['success'] must be True, False or None, got {shown(verdict)}")
    return kept


def check_bounds(info: Any) -> None:
    """Raise ``EnvError`` if ``info`` contains itself, is nested too deep or holds too many items to be written."""
    _copied(info, 0, _Left())


class _Left:
    """How many more items an info may hold. A container that is held many times counts each time, because a file repeats it."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items = MOST_ITEMS

    def check(self, depth: int) -> None:
        """Raise ``EnvError`` if a container at ``depth``, whose items have been counted, cannot be kept."""
        if depth >= DEEPEST or self.items < 0:
            raise EnvError(
                f"info cannot be written: it contains itself, is nested more than {DEEPEST} deep, or holds more than "
                f"{MOST_ITEMS} items"
            )


_AS_IT_IS = frozenset({bool, float, type(None)})


def _copied(value: Any, depth: int, left: _Left) -> Any:
    """A copy of ``value`` that shares nothing with it that can change, of types that a file holds."""
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind in _AS_IT_IS:
        return value
    if kind is int:
        # A file holds 64 bits.
        return value if -(2**63) <= value < 2**64 else _marker(value)
    if isinstance(value, dict | list | tuple):
        left.items -= len(value) if kind in (dict, list, tuple) else _size(value)
        left.check(depth)
        # The methods of the built-in type: those of a subclass are the stranger's.
        if isinstance(value, dict):
            return {_key(key): _copied(item, depth + 1, left) for key, item in dict.items(value)}
        if isinstance(value, list):
            return [_copied(item, depth + 1, left) for item in list.__iter__(value)]
        return tuple([_copied(item, depth + 1, left) for item in tuple.__iter__(value)])
    return _simpler(value, depth, left)


def _size(value: "dict[Any, Any] | list[Any] | tuple[Any, ...]") -> int:
    """The number of items of a subclass, whatever its own ``__len__`` says."""
    kind = dict if isinstance(value, dict) else list if isinstance(value, list) else tuple
    return kind.__len__(value)  # type: ignore[arg-type]


def _simpler(value: Any, depth: int, left: _Left) -> Any:
    """A copy of a value that is of no plain type."""
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, int):
        return _copied(int.__add__(value, 0), depth, left)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        left.items -= value.size
        return np.array(value, copy=True, subok=isinstance(value, Ints | Floats))
    if isinstance(value, np.ndarray):
        left.items -= value.size
        left.check(depth)
        return _copied(value.tolist(), depth, left)
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
        return _copied(value.item(), depth, left)
    # As a file would hold it: a set as a list, a dataclass as a dict, a date as text. Its parts are copied and counted here: a
    # graph whose objects share their parts would be written once for each way to a part.
    if isinstance(value, set | frozenset):
        left.items -= (set if isinstance(value, set) else frozenset).__len__(value)  # type: ignore[arg-type]
        left.check(depth)
        items = set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)
        return _sorted([_copied(item, depth + 1, left) for item in items])
    if isinstance(value, enum.Enum):
        return _copied(value.value, depth + 1, left)
    if (names := _fields(value)) is not None:
        left.items -= len(names)
        left.check(depth)
        parts = ((written, getattr(value, name, msgspec.UNSET)) for name, written in names)
        return {name: _copied(part, depth + 1, left) for name, part in parts if part is not msgspec.UNSET}
    try:
        return decode_json(encode_json(value), Any)
    except (*UNWRITABLE, SchemaError):
        return _marker(value)


def _fields(value: object) -> list[tuple[str, str]] | None:
    """The attributes of a dataclass, an attrs object or a struct, each with its name in a file; ``None`` for others."""
    kind = type(value)
    if isinstance(value, msgspec.Struct):
        return list(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(kind):
        return [(field.name, field.name) for field in dataclasses.fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [(field.name, field.name) for field in kind.__attrs_attrs__]
    return None


def _sorted(items: list[Any]) -> list[Any]:
    """``items``, which had no order, in an order that does not depend on the hash seed."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=encode_json)


def _marker(value: object) -> dict[str, str]:
    return {"$unserialisable": type_name(value)}


def _key(key: Any) -> str:
    if type(key) is str:
        return key if key.isascii() else clean_text(key)
    try:
        return clean_text(str.__str__(str(key)))
    except Exception as error:  # noqa: BLE001 - whatever its __str__ raises
        raise EnvError(f"info cannot be written: a key has no text ({message_of(error)})") from None


# ------------------------------------------------------------------------------------------------------------ policies


def is_plain(completion: object) -> bool:
    """Whether ``completion`` is exactly what the contract says, and has neither tokens nor usage."""
    return (
        type(completion) is Completion
        and type(completion.text) is str
        and type(completion.reasoning) is str
        and type(completion.finish) is Finish
        and completion.tokens is None
        and completion.usage is None
        and completion.notes == ()
    )


def kept_completion(completion: Completion) -> Completion:
    """``completion`` if it is exactly what the contract says, else a copy that is; ``PolicyError`` if there is none."""
    if is_plain(completion):
        return completion
    return Completion(
        _said(completion.text, "text"),
        _finish(completion.finish),
        _said(completion.reasoning, "reasoning"),
        None if completion.tokens is None else _kept_tokens(completion.tokens),
        tuple(_kept_tokens(note) for note in _is_a(tuple, completion.notes, "notes")),
        None if completion.usage is None else _kept_usage(completion.usage),
    )


def kept_played(played: object) -> PlayedRecord | None:
    """Return the answer of ``end_episode`` as a copy that can be read again; ``PolicyError`` if it is anything else."""
    if played is None:
        return None
    if not isinstance(played, PlayedRecord):
        raise PolicyError(f"end_episode() must return a PlayedRecord or None, got {shown(played)}")
    try:
        # Through the bytes that a file holds, and the schema of its reader.
        segments = decode_msgpack(encode_msgpack(played.segments), tuple[Segment, ...])
        agent = None if played.agent is None else decode_msgpack(encode_msgpack(played.agent), AgentRecord)
    except (*UNWRITABLE, SchemaError) as error:
        raise PolicyError(f"end_episode() returned a record that cannot be written: {message_of(error)}") from None
    return PlayedRecord(segments, agent)


_K = TypeVar("_K")


def _is_a(kind: type[_K], value: object, name: str) -> _K:
    if not isinstance(value, kind):
        raise PolicyError(f"{name} of a completion must be a {kind.__name__}, got {shown(value)}")
    return value


def _said(text: object, name: str) -> str:
    return str.__str__(_is_a(str, text, name))


def _finish(finish: Any) -> Finish:
    try:
        return Finish(finish)
    except ValueError:
        raise PolicyError(f"finish of a completion must be a Finish, got {shown(finish)}") from None


def _kept_tokens(tokens: object) -> Tokens:
    tokens = _is_a(Tokens, tokens, "tokens")
    try:
        updates = tuple((_count(index, "an index"), _count(version, "a version")) for index, version in tokens.updates)
        prompt, ids, logprobs = ints_of(tokens.prompt), ints_of(tokens.ids), floats_of(tokens.logprobs)
        return Tokens(prompt, ids, logprobs, _count(tokens.version, "a version"), updates)
    except (TypeError, ValueError, OverflowError) as error:
        raise PolicyError(f"tokens of a completion cannot be kept: {message_of(error)}") from None


def _kept_usage(usage: object) -> Usage:
    usage = _is_a(Usage, usage, "usage")
    dollars: Any = usage.dollars
    if type(dollars) is not float:
        try:
            dollars = float("nan") if isinstance(dollars, str | bytes) else float(dollars)
        except (TypeError, ValueError, OverflowError):
            dollars = float("nan")
    if not 0 <= dollars <= LARGEST_REWARD:
        raise PolicyError(f"dollars of a usage must be a number from 0 to {LARGEST_REWARD:g}, got {shown(usage.dollars)}")
    retries = _is_a(dict, usage.retries, "retries of the usage")
    return Usage(
        _count(usage.prompt_tokens, "prompt_tokens"),
        _count(usage.completion_tokens, "completion_tokens"),
        dollars,
        {_said(reason, "a reason of retries"): _count(calls, "retries") for reason, calls in dict.items(retries)},
    )


def _count(number: Any, name: str) -> int:
    try:
        count = operator.index(number)
    except TypeError:
        count = -1
    if not 0 <= count <= _LARGEST_COUNT:
        raise PolicyError(f"{name} of a completion must be a whole number from 0 to 2**53, got {shown(number)}")
    return int(count)
