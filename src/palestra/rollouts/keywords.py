"""The keywords that ``rollout``, ``collect``, ``play`` and ``evaluate`` share: names and types, written once.

A function takes them as ``**options: Unpack[RolloutKeywords]``, so type checkers and editors know each of them. The docstring
of ``rollout`` says what they mean, and ``RolloutOptions`` has their defaults.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import fields
from functools import wraps
from inspect import Parameter
from typing import Any, TypedDict, TypeVar, get_args, get_type_hints

from palestra.core import Tool
from palestra.registry import WrapperFactory
from palestra.rollouts.options import RolloutOptions

__all__ = ["EpisodeKeywords", "PanelKeywords", "RolloutKeywords", "shows_keywords"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class EpisodeKeywords(TypedDict, total=False):
    """How an episode is played."""

    seed: int
    deadline: float
    max_turns: int | None
    retries: int
    wrappers: Sequence[WrapperFactory | str]
    tools: Sequence[Tool | str]


class PanelKeywords(EpisodeKeywords, total=False):
    """How a panel of tasks is played, by an evaluation or a rollout."""

    n: int | None
    group_size: int
    concurrency: int


class RolloutKeywords(PanelKeywords, total=False):
    """How a rollout is played."""

    cut_as_invalid: bool
    skip: Container[tuple[int, int]]


def shows_keywords(function: _Function) -> _Function:
    """Let ``function``, which takes ``**options: Unpack[…]``, behave as if each keyword were written out.

    ``inspect.signature``, ``help`` and notebooks show every keyword with its type and default. Another keyword is refused with
    the error of Python, at the call: without this, an async function would refuse it only when it is awaited.
    """
    signature = inspect.signature(function)
    *written, options = signature.parameters.values()
    (keywords,) = get_args(options.annotation)
    types = get_type_hints(keywords)
    shared = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
        for field in fields(RolloutOptions)
        if field.name in types
    ]
    names = {parameter.name for parameter in (*written, *shared)}

    @wraps(function)
    def checked(*arguments: Any, **given: Any) -> Any:
        for name in given:
            if name not in names:
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
        return function(*arguments, **given)

    checked.__signature__ = signature.replace(parameters=[*written, *shared])  # type: ignore[attr-defined]
    if inspect.iscoroutinefunction(function):
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(checked)
        else:
            checked._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]
