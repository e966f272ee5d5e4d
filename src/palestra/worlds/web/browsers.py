"""Browsers that episodes share: a few Chromium processes without a network, each with a few contexts.

A context is what belongs to one episode: cookies, storage and tabs of its own. ``shared_browsers`` has one ``Browsers`` per
event loop. It starts a browser when all others are full, opens only a few contexts at once (many at once run into timeouts),
and replaces a browser after some contexts, because its memory grows. When a browser dies, its episodes fail as infrastructure
and are played again; the next context gets another browser.
"""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from palestra.errors import InfrastructureError, MissingExtra
from palestra.foundation.installation import how_to_install
from palestra.foundation.resources.sharing import SharedPerLoop
from palestra.worlds.web.front import PORT, Front, handed_over
from palestra.worlds.web.jail import DOOR, chromium_program, write_jail

if TYPE_CHECKING:
    from aiohttp import web
    from playwright.async_api import Browser, BrowserContext, Page, Playwright

__all__ = ["Browsers", "Seat", "answered", "is_death", "shared_browsers"]

R = TypeVar("R")

CONTEXTS_PER_BROWSER = 8
CONTEXTS_PER_LIFE = 400
"""After this number of contexts, a browser is replaced."""
OPENED_AT_ONCE = 3
ANSWER_SECONDS = 60.0
"""A browser that does not answer a call for so long counts as dead."""
CLOSE_SECONDS = 10.0
# No --disable-features: Chromium obeys only the last such flag, and Playwright has a list of its own.
_FLAGS = (
    "--disable-dev-shm-usage",  # /dev/shm of the jail is small
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--disable-lcd-text",
)
_CONTEXT = {
    "viewport": {"width": 1000, "height": 700},
    "locale": "en-US",
    "timezone_id": "UTC",
    "reduced_motion": "reduce",
    "service_workers": "block",
    "accept_downloads": False,
}


@asynccontextmanager
async def answered(seconds: float = ANSWER_SECONDS) -> AsyncIterator[None]:
    """Turn the death of a browser, or its silence, into an ``InfrastructureError``. Errors of actions pass."""
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as NoAnswer

    try:
        async with asyncio.timeout(seconds):
            yield
    except (TimeoutError, NoAnswer):
        raise InfrastructureError(f"the browser did not answer within {seconds:g} s") from None
    except Error as error:
        if is_death(error.message):
            raise InfrastructureError(f"the browser has died: {error.message.splitlines()[0][:200]}") from None
        raise


def is_death(message: str) -> bool:
    """Return whether a message of Playwright says that the browser, or the process of a page, has ended."""
    return any(
        words in message
        for words in ("has been closed", "Target crashed", "Connection closed", "Page crashed", "Browser closed")
    )


_MODIFIERS = ("Alt", "Control", "Meta", "Shift")


class _Process:
    """One Chromium, and the port of its jail at which the proxy answers."""

    def __init__(self, browser: "Browser", port: "web.BaseSite | None" = None) -> None:
        self.browser = browser
        self._port = port
        self.open = 0
        self.opened = 0
        self.silent = False
        """It did not answer once. It gets no more contexts."""

    @property
    def worn(self) -> bool:
        return self.silent or self.opened >= CONTEXTS_PER_LIFE or not self.browser.is_connected()

    async def close(self) -> None:
        """End the browser, dead or alive, and close its port: an open one would keep the network of the jail."""
        await _ended(self.browser.close())
        port, self._port = self._port, None
        if port is not None:
            await port.stop()


class Seat:
    """One context of one browser. Close it exactly once."""

    def __init__(self, context: "BrowserContext", process: _Process, owner: "Browsers") -> None:
        self.context = context
        self._process = process
        self._owner = owner
        self._closed = False

    @property
    def alive(self) -> bool:
        return not self._closed and self._process.browser.is_connected()

    async def clean(self, page: "Page", origins: Iterable[str]) -> bool:
        """Forget what an episode has left: other tabs, keys and the mouse, cookies, storage and cache.

        Returns:
            Whether the page can be used again.
        """
        from playwright.async_api import Error

        self._process.opened += 1  # an episode wears the browser as much in an old context as in a new one
        try:
            async with answered(CLOSE_SECONDS):
                for other in self.context.pages:
                    if other is not page:
                        await other.close()
                await page.goto("about:blank")
                await page.evaluate("name = ''")
                for key in _MODIFIERS:
                    await page.keyboard.up(key)
                await page.mouse.up()
                await page.mouse.move(0, 0)
                await self.context.clear_cookies()
                tools = await self.context.new_cdp_session(page)
                for origin in origins:
                    await tools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
                await tools.send("Network.clearBrowserCache")
                await tools.detach()
        except (Error, InfrastructureError):
            return False
        return True

    async def close(self) -> None:
        """Close the context. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        await self._owner.give_back(self.context, self._process)


class Browsers:
    """Chromium processes of one event loop. They start with the first context.

    What opens or closes something runs in a task of its own, which this object keeps. So a caller that is cancelled leaves no
    context, browser or driver behind.
    """

    def __init__(self, chromium: str = "", jailed: bool = True) -> None:
        self._chromium = chromium
        self._jailed = jailed
        self.front = Front()
        """The proxy that contexts may use: it is all that they reach outside of the browser."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._playwright: Playwright | None = None
        self._processes: list[_Process] = []
        self._starting = asyncio.Lock()
        self._opening = asyncio.Semaphore(OPENED_AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, options: Mapping[str, Any] | None = None) -> Seat:
        """Open a context with the page's clock and random numbers set. ``options`` go to Playwright's ``new_context``."""
        task = self._start(self._open(options or {}))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._start(_close_unwanted(task))
            raise

    async def _open(self, options: Mapping[str, Any]) -> Seat:
        async with self._opening:
            process = await self._free_process()
            process.open += 1
            process.opened += 1
            context: BrowserContext | None = None
            try:
                async with answered():
                    context = await process.browser.new_context(**{**_CONTEXT, **options})
                    await context.add_init_script((files("palestra.worlds.web") / "page_start.js").read_text())
            except BaseException as error:
                process.silent = process.silent or isinstance(error, InfrastructureError)
                self._start(self._give_back(context, process))
                raise
            return Seat(context, process, self)

    async def _free_process(self) -> _Process:
        async with self._starting:
            for process in [candidate for candidate in self._processes if candidate.worn and not candidate.open]:
                self._processes.remove(process)
                self._start(process.close())
            for process in self._processes:
                if process.open < CONTEXTS_PER_BROWSER and not process.worn:
                    return process
            process = await self._launch()
            self._processes.append(process)
            return process

    async def _launch(self) -> _Process:
        try:
            from playwright.async_api import async_playwright
        except ImportError:
            raise MissingExtra(f"the web needs Playwright: {how_to_install('web')}") from None
        chromium = self._chromium or chromium_program()
        if self._playwright is None:
            self._playwright = await async_playwright().start()
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="palestra-web-", ignore_cleanup_errors=True)
        if not self._jailed:
            return _Process(await self._run(Path(chromium)))
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(str(folder / DOOR))
                door.listen(1)
                browser = await self._run(write_jail(folder, chromium, PORT))
                try:
                    async with answered():
                        return _Process(browser, await self.front.serve(await handed_over(door)))
                except BaseException:
                    await _ended(browser.close())
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _run(self, program: Path) -> "Browser":
        assert self._playwright is not None
        async with answered():
            return await self._playwright.chromium.launch(
                executable_path=program, args=_FLAGS, handle_sigint=False, handle_sigterm=False
            )

    async def give_back(self, context: "BrowserContext", process: _Process) -> None:
        """Close ``context``, and the browser too if it is worn and this was its last context."""
        await asyncio.shield(self._start(self._give_back(context, process)))

    async def _give_back(self, context: "BrowserContext | None", process: _Process) -> None:
        if context is not None and not await _ended(context.close()):
            process.silent = True
        process.open -= 1
        if process.worn and not process.open:
            self._processes = [other for other in self._processes if other is not process]
            await process.close()

    async def close(self) -> None:
        """End every browser."""
        await asyncio.shield(self._start(self._close()))

    async def _close(self) -> None:
        while others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others)
        processes, self._processes = self._processes, []
        playwright, self._playwright = self._playwright, None
        folder, self._folder = self._folder, None
        for process in processes:
            await process.close()
        if playwright is not None:
            await _ended(playwright.stop())
        await self.front.close()
        if folder is not None:
            folder.cleanup()

    def _start(self, work: Coroutine[Any, Any, R]) -> "asyncio.Task[R]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _close_unwanted(opening: "asyncio.Task[Seat]") -> None:
    """Close the context of a caller that was cancelled."""
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().close()


async def _ended(closing: Awaitable[object]) -> bool:
    """Wait for something to close. Return false if it does not answer."""
    from playwright.async_api import Error

    try:
        async with answered(CLOSE_SECONDS):
            await closing
    except InfrastructureError as error:
        return "died" in str(error)
    except Error:
        return True
    return True


_shared: SharedPerLoop[str, Browsers] = SharedPerLoop(Browsers, Browsers.close)


def shared_browsers(chromium: str = "") -> AbstractAsyncContextManager[Browsers]:
    """Share browsers among all users on the running loop; the last one to leave closes them."""
    return _shared.use(chromium)
