"""Can these environments be played as asked? Mistakes of the caller show before the first episode, not in every episode.

Only what costs little is tried: the connection to a server, and the constructors of the wrappers around one environment. What
an environment does wrong by itself is data: its episodes say so.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from palestra.core import AsyncEnv
from palestra.errors import PalestraError, UsageError
from palestra.registry import EnvSpec, build
from palestra.rollouts.options import RolloutOptions

__all__ = ["check_playable"]

_PATIENCE = 10.0
"""Seconds that closing what was tried may take."""


async def check_playable(specs: Iterable[EnvSpec], options: RolloutOptions) -> None:
    """Connect to the servers among ``specs``, and put the wrappers of ``options`` around one environment.

    Raises:
        UsageError: A server cannot be reached or refuses, or a wrapper cannot be created with its arguments.
    """
    listed = list(specs)
    remote = [spec for spec in listed if _can_tell(spec)]
    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(_refusal(spec)) for spec in remote]
    if refusals := [refusal for check in checks if (refusal := check.result()) is not None]:
        raise refusals[0]
    if listed and (options.wrappers or options.tools):
        await _check_wrappers(listed[0], options)


def _can_tell(spec: EnvSpec) -> bool:
    """Whether the class of ``spec`` has ``check_reachable``."""
    try:
        return hasattr(spec.factory(spec.kwargs), "check_reachable")
    except PalestraError:
        return False  # its episodes fail with the reason


async def _refusal(spec: EnvSpec) -> UsageError | None:
    try:
        env = build(spec, {})
    except UsageError as error:
        return error
    try:
        if (check := getattr(env.unwrapped, "check_reachable", None)) is not None:
            await check()
    except UsageError as error:
        return error
    finally:
        await _close(env)
    return None


async def _check_wrappers(spec: EnvSpec, options: RolloutOptions) -> None:
    try:
        env = build(spec, {})
    except Exception:  # noqa: BLE001
        return  # its episodes fail with the reason
    names = [*options.names_around()[0], "tools", "max_turns"]
    try:
        for name, wrap in zip(names, options.around(), strict=False):
            try:
                env = wrap(env)
            except PalestraError:
                raise
            except Exception as error:
                raise UsageError(
                    f'the wrapper {name} cannot be put around "{spec.id}": {type(error).__name__}: {error}. '
                    f"Correct its arguments"
                ) from error
    finally:
        await _close(env)


async def _close(env: AsyncEnv) -> None:
    with suppress(Exception):  # it was made for the check only, and has played nothing
        async with asyncio.timeout(_PATIENCE):
            await env.close()
