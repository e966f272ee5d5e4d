"""Contexts and browsers are never left behind: by a silent browser, by a caller that is cancelled."""

import asyncio
import base64
import socket
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")

from palestra.envs.web import browsers as module
from palestra.envs.web.browsers import Browsers
from palestra.envs.web.front import Front
from palestra.envs.web.jail import DOOR
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

    async def launch(self: Browsers) -> Any:
        gate = asyncio.Event()
        if started:
            gate.set()
        started.append(FakeBrowser(gate))
        return module._Process(cast("Any", started[-1]))

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


class FakePlaywright:
    async def stop(self) -> None: ...


class Jails:
    """Launches browsers that are not there. Their launchers hand over a port, hang up, or do not come to the door."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, launcher: str = "hands over") -> None:
        self.launcher = launcher
        self.ports: list[int] = []
        self.started: list[FakeBrowser] = []
        monkeypatch.setattr(module, "write_jail", lambda folder, *_: folder)
        monkeypatch.setattr(Browsers, "_run", lambda _, folder: self.run(folder))

    def browsers(self) -> Browsers:
        made = Browsers("no-such-chromium")
        made._playwright = cast("Any", FakePlaywright())
        return made

    async def run(self, folder: Path) -> FakeBrowser:
        with socket.socket(socket.AF_UNIX) as launcher, socket.create_server(("127.0.0.1", 0)) as listener:
            if self.launcher != "stays away":
                launcher.connect(str(folder / DOOR))
            if self.launcher == "hands over":
                socket.send_fds(launcher, [b"x"], [listener.fileno()])
            self.ports.append(listener.getsockname()[1])
        self.started.append(FakeBrowser(asyncio.Event()))
        self.started[-1].gate.set()
        return self.started[-1]

    def listening(self) -> list[bool]:
        found = []
        for port in self.ports:
            with socket.socket() as client:
                found.append(client.connect_ex(("127.0.0.1", port)) == 0)
        return found


async def test_the_port_of_a_worn_browser_is_closed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONTEXTS_PER_LIFE", 1)
    jails = Jails(monkeypatch)
    browsers = jails.browsers()
    seat = await browsers.open()
    assert jails.listening() == [True]
    await seat.close()
    assert jails.listening() == [False]
    await browsers.close()


async def test_the_port_of_a_browser_that_died_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    jails = Jails(monkeypatch)
    browsers = jails.browsers()
    await (await browsers.open()).close()
    jails.started[0].closed = True
    seat = await browsers.open()
    while browsers._tasks:
        await asyncio.wait(set(browsers._tasks))
    assert jails.listening() == [False, True]
    await seat.close()
    await browsers.close()
    assert jails.listening() == [False, False]


@pytest.mark.parametrize("launcher", ["stays away", "hangs up"])
async def test_a_browser_without_a_port_is_closed_and_infrastructure(monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    patient = module.answered
    monkeypatch.setattr(module, "answered", lambda seconds=0.05: patient(0.05))
    jails = Jails(monkeypatch, launcher)
    browsers = jails.browsers()
    with pytest.raises(InfrastructureError, match=r"did not answer|handed over"):
        await browsers.open()
    assert [one.closed for one in jails.started] == [True]
    await browsers.close()


def test_a_wrong_password_of_any_letters_is_refused() -> None:
    front = Front()
    admitted = front.admit(cast("Any", None))
    for password, known in ((admitted.password, admitted), ("wrong", None), ("café", None)):
        shown = base64.b64encode(f"{admitted.name}:{password}".encode()).decode()
        assert front._known(f"Basic {shown}") is known


def test_a_reward_that_is_no_number_is_a_wrong_end() -> None:
    assert [_in_range(raw) for raw in (float("nan"), None, 7, -3.0, 0.25)] == [-1.0, 0.0, 1.0, -1.0, 0.25]
