"""How the tests of sites play: the oracle, in shared browsers, a few episodes at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from palestra.core import Step
from palestra.trajectory import text_of
from palestra.worlds.web.browsers import shared_browsers
from palestra.worlds.web.sites.env import Errands

__all__ = ["in_browser", "missed", "play"]


def in_browser(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Mark a test that starts Chromium. A longer time limit stands below this mark: pytest obeys the lowest one."""
    for mark in (pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)):
        test = mark(test)
    return test


async def play(env: Errands, seen: list[str] | None = None) -> Step:
    """Let the oracle play the rest of the episode."""
    while True:
        step = await env.step(await env.oracle())
        if seen is not None:
            seen.append(text_of(step.observation))
        if step.terminated or step.truncated:
            return step


async def missed(town: str, templates: Iterable[str], seeds: range) -> list[tuple[str, int, str]]:
    """Return the tasks that the oracle does not solve: template, seed and why."""
    found: list[tuple[str, int, str]] = []
    places = asyncio.Semaphore(4)

    async def one(template: str) -> None:
        async with places:
            env = Errands(town, template=template, max_turns=60)
            try:
                for seed in seeds:
                    await env.reset(seed=seed)
                    step = await play(env)
                    if step.reward != 1.0:
                        found.append((template, seed, str(step.info)))
            finally:
                await env.close()

    async with shared_browsers():
        await asyncio.gather(*map(one, templates))
    return found
