"""Contexts and browsers are never left behind: by a silent browser, by a caller that is cancelled."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")

from palestra.envs.web import browsers as module
from palestra.envs.web.browsers import Browsers
from palestra.envs.web.miniwob.env import _in_range
from palestra.errors import InfrastructureError


class FakeContext:
    def __init__(self, browser: "FakeBrowser") -> None:
        self.browser = browser
        browser.contexts.append(self)

    async def add_init_script(self, script: str) -> None:
        assert "__palestraAdvance" in script

    async def close(self) -> None:
        self.browser.contexts.remove(self)


class FakeBrowser:
    """A browser whose contexts open when ``gate`` does."""

    def __init__(self, gate: asyncio.Event) -> None:
        self.gate = gate
        self.contexts: list[FakeContext] = []
        self.closed = False

    def is_connected(self) -> bool:
        return not self.closed

    async def new_context(self, **options: Any) -> FakeContext:
        await self.gate.wait()
        return FakeContext(self)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[FakeBrowser]:
    """The browsers that were started. The first one is silent until its gate is opened."""
    started: list[FakeBrowser] = []

    async def launch(self: Browsers) -> FakeBrowser:
        gate = asyncio.Event()
        if started:
            gate.set()
        started.append(FakeBrowser(gate))
        return started[-1]

    monkeypatch.setattr(Browsers, "_launch", launch)
    return started


async def test_a_silent_browser_gets_no_more_contexts(launched: list[FakeBrowser], monkeypatch: pytest.MonkeyPatch) -> None:
    patient = module.answered
    monkeypatch.setattr(module, "answered", lambda seconds=0.05: patient(0.05))
    browsers = Browsers()
    with pytest.raises(InfrastructureError, match="did not answer"):
        await browsers.open()
    seat = await browsers.open()
    assert len(launched) == 2
    await seat.close()
    await browsers.close()
    assert [browser.closed for browser in launched] == [True, True]


async def test_a_caller_that_is_cancelled_leaves_no_context(launched: list[FakeBrowser]) -> None:
    browsers = Browsers()
    opening = asyncio.create_task(browsers.open())
    while not launched:
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    launched[0].gate.set()
    await browsers.close()
    assert launched[0].contexts == []
    assert launched[0].closed


def test_a_reward_that_is_no_number_is_a_wrong_end() -> None:
    assert [_in_range(raw) for raw in (float("nan"), None, 7, -3.0, 0.25)] == [-1.0, 0.0, 1.0, -1.0, 0.25]
