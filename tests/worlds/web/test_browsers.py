"""Contexts and browsers are never left behind: by a silent browser, by a caller that is cancelled."""

import asyncio
import base64
import socket
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")

from palestra.errors import InfrastructureError
from palestra.worlds.web import browsers as module
from palestra.worlds.web.browsers import Browsers
from palestra.worlds.web.front import Front
from palestra.worlds.web.jail import DOOR
from palestra.worlds.web.miniwob.env import _in_range


class FakeBrowser:
    """A browser, and its contexts, which open when ``gate`` is set."""

    def __init__(self, silent: bool) -> None:
        self.gate = asyncio.Event()
        if not silent:
            self.gate.set()
        self.contexts: list[FakeContext] = []
        self.closed = False

    def is_connected(self) -> bool:
        return not self.closed

    async def new_context(self, **options: Any) -> "FakeContext":
        await self.gate.wait()
        return FakeContext(self)

    async def close(self) -> None:
        self.closed = True


class FakeContext:
    def __init__(self, browser: FakeBrowser) -> None:
        self.browser = browser
        browser.contexts.append(self)

    async def add_init_script(self, script: str) -> None:
        assert "__palestraAdvance" in script

    async def close(self) -> None:
        self.browser.contexts.remove(self)


class FakePlaywright:
    async def stop(self) -> None: ...


class Jails:
    """Starts browsers that are not there. The launcher of each hands over a port, hangs up, or does not come to the door."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, launcher: str = "hands over", silent: int = 0) -> None:
        self.launcher, self.silent = launcher, silent
        self.ports: list[int] = []
        self.started: list[FakeBrowser] = []
        monkeypatch.setattr(module, "write_jail", lambda folder, *_: folder)
        monkeypatch.setattr(Browsers, "_run", lambda _, folder: self.run(folder))
        self.browsers = Browsers("no-such-chromium")
        self.browsers._playwright = cast("Any", FakePlaywright())

    async def run(self, folder: Path) -> FakeBrowser:
        with socket.socket(socket.AF_UNIX) as launcher, socket.create_server(("127.0.0.1", 0)) as listener:
            if self.launcher != "stays away":
                launcher.connect(str(folder / DOOR))
            if self.launcher == "hands over":
                socket.send_fds(launcher, [b"x"], [listener.fileno()])
            self.ports.append(listener.getsockname()[1])
        self.started.append(FakeBrowser(silent=len(self.started) < self.silent))
        return self.started[-1]

    def listening(self) -> list[bool]:
        found = []
        for port in self.ports:
            with socket.socket() as client:
                found.append(client.connect_ex(("127.0.0.1", port)) == 0)
        return found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a browser."""
    patient = module.answered
    monkeypatch.setattr(module, "answered", lambda seconds=0.05: patient(0.05))


@pytest.mark.usefixtures("impatient")
async def test_a_silent_browser_gets_no_more_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    jails = Jails(monkeypatch, silent=1)
    with pytest.raises(InfrastructureError, match="did not answer"):
        await jails.browsers.open()
    await (await jails.browsers.open()).close()
    await jails.browsers.close()
    assert [browser.closed for browser in jails.started] == [True, True]


async def test_a_caller_that_is_cancelled_leaves_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    jails = Jails(monkeypatch, silent=1)
    opening = asyncio.create_task(jails.browsers.open())
    while not jails.started:
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    jails.started[0].gate.set()
    await jails.browsers.close()
    assert (jails.started[0].contexts, jails.started[0].closed) == ([], True)


async def test_the_port_of_a_browser_is_closed_when_it_is_worn_or_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    jails = Jails(monkeypatch)
    await (await jails.browsers.open()).close()
    jails.started[0].closed = True
    monkeypatch.setattr(module, "CONTEXTS_PER_LIFE", 1)
    seat = await jails.browsers.open()
    while jails.browsers._tasks:
        await asyncio.wait(set(jails.browsers._tasks))
    assert jails.listening() == [False, True]
    await seat.close()
    assert jails.listening() == [False, False]
    await jails.browsers.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("launcher", ["stays away", "hangs up"])
async def test_a_browser_without_a_port_is_closed_and_infrastructure(monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    jails = Jails(monkeypatch, launcher)
    with pytest.raises(InfrastructureError, match=r"did not answer|handed over"):
        await jails.browsers.open()
    assert [browser.closed for browser in jails.started] == [True]
    await jails.browsers.close()


def test_a_wrong_password_of_any_letters_is_refused() -> None:
    front = Front()
    admitted = front.admit(cast("Any", None))
    for password, known in ((admitted.password, admitted), ("wrong", None), ("café", None)):
        shown = base64.b64encode(f"{admitted.name}:{password}".encode()).decode()
        assert front._known(f"Basic {shown}") is known


def test_a_reward_that_is_no_number_is_a_wrong_end() -> None:
    assert [_in_range(raw) for raw in (float("nan"), None, 7, -3.0, 0.25)] == [-1.0, 0.0, 1.0, -1.0, 0.25]
