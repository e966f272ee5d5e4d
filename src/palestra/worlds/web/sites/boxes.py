"""Palestra's side of the processes of sites: a warm process per site and event loop, and a ``SiteBox`` per episode.

A box is a fork of the warm process with a folder of its own. The death of a process, or its silence, is an
``InfrastructureError``: the episode is played again. A dead warm process is replaced by the next episode that needs one.
"""

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from palestra.errors import EnvError, InfrastructureError, MissingExtra
from palestra.foundation.processes.dialogue import Dialogue
from palestra.foundation.references import search_path
from palestra.foundation.resources.sharing import SharedPerLoop
from palestra.registry import Need
from palestra.worlds.web.sites.calling import Request, Response
from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.frames import SIZES, Frame, encode

__all__ = ["Boxes", "SiteBox", "shared_boxes"]

START_SECONDS = 120.0
ANSWER_SECONDS = 60.0
_TIME_MACHINE = Need(label="time-machine", module="time_machine", extra="sites")
_MOST_WORDS = 2000
"""Characters of what a process wrote before its end that are shown."""
_MOST_BYTES = 2**30
"""Of an answer."""
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Environment variables that a site gets from this process. It gets no others: they may hold secrets."""

_log = logging.getLogger(__name__)


class _Wire:
    """A connection to a process that another process has forked. Without an answer, the process is killed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: Mapping[str, Any]) -> None:
        self._dialogue: Dialogue[Frame, Frame] = Dialogue(reader, writer, lambda frame: encode(*frame), _frame)
        self._pid = int(hello["pid"])
        self._handle = os.pidfd_open(self._pid)
        self.alive = True

    async def ask(self, head: dict[str, Any], body: bytes = b"", seconds: float = ANSWER_SECONDS) -> Frame:
        try:
            return await self._dialogue.ask(Frame(head, body), seconds)
        except TimeoutError:
            raise InfrastructureError(f"a site did not answer within {seconds:g} s") from None
        except ConnectionError:
            raise InfrastructureError("the process of a site has ended") from None
        finally:
            if not self._dialogue.sound:
                self.kill()

    def kill(self) -> None:
        """End the process at once. A second call does nothing."""
        if not self.alive:
            return
        self.alive = False
        self._dialogue.close()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)

    async def closed(self) -> None:
        """End the process, and wait until the connection is closed."""
        self.kill()
        await self._dialogue.wait_closed()


async def _frame(reader: asyncio.StreamReader) -> Frame:
    head, body = SIZES.unpack(await reader.readexactly(SIZES.size))
    if head + body > _MOST_BYTES:
        raise ValueError(f"{head + body} bytes, at most {_MOST_BYTES} are allowed")
    return Frame(json.loads(await reader.readexactly(head)), await reader.readexactly(body) if body else b"")


class SiteBox:
    """A site of one episode: a process and its folder. Close it exactly once."""

    def __init__(self, site: Site, folder: Path, wire: _Wire, owner: "Boxes") -> None:
        self.site = site
        self.folder = folder
        self._wire = wire
        self._owner = owner

    @property
    def alive(self) -> bool:
        return self._wire.alive

    async def ask(self, asked: Request) -> Response:
        """Let the application answer a request."""
        head = {"do": "answer", "method": asked.method, "url": asked.url, "headers": asked.headers}
        frame = await self._wire.ask(head, asked.body)
        if frame.head["failure"]:  # the page says only that it has failed: an agent reads no source code
            _log.warning("%s failed at %s %s\n%s", self.site.host, asked.method, asked.url, frame.head["failure"])
        return Response(frame.head["status"], [(name, value) for name, value in frame.head["headers"]], frame.body)

    async def fork(self) -> "SiteBox":
        """Return an independent copy: files, and what the application holds in memory."""
        return await self._owner.forked(self._wire)

    def close(self) -> None:
        """End the process and remove the folder."""
        self._wire.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Boxes:
    """The warm process of one site, on one event loop. It starts with the first box."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._starting = asyncio.Lock()
        self._home: Path | None = None
        self._server: asyncio.Server | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._warm: _Wire | None = None
        self._numbers = count(1)
        self._hellos: dict[str, asyncio.Future[tuple[_Wire, Mapping[str, Any]]]] = {}
        self._wires: list[_Wire] = []

    async def open(self, seed: int, options: Mapping[str, Any] | None = None) -> SiteBox:
        """Return the site for an episode with this seed. ``options`` go to the seeding function of the site."""
        return await self.forked(await self._warmed(), seed, dict(options or {}))

    async def forked(self, parent: _Wire, seed: int | None = None, options: dict[str, Any] | None = None) -> SiteBox:
        """Return a box whose process is a fork of ``parent``."""
        assert self._home is not None
        name = str(next(self._numbers))
        folder = self._home / name
        order = {"do": "fork", "name": name, "folder": str(folder), "seed": seed, "options": options or {}}
        try:
            async with _Expected(self._hellos, name) as hello:
                await parent.ask({**order, "socket": str(self._home / "socket")})
                async with asyncio.timeout(ANSWER_SECONDS):
                    wire, about = await hello
        except TimeoutError:
            shutil.rmtree(folder, ignore_errors=True)
            raise InfrastructureError(f"the site {self._site.host} did not start within {ANSWER_SECONDS:g} s") from None
        if "error" in about:
            wire.kill()
            shutil.rmtree(folder, ignore_errors=True)
            raise EnvError(f"the site {self._site.host} could not be seeded:\n{about['error']}")
        return SiteBox(self._site, folder, wire, self)

    async def _warmed(self) -> _Wire:
        async with self._starting:
            if self._warm is None or not self._warm.alive:
                await self._end_warm()
                self._warm = await self._start()
            return self._warm

    async def _start(self) -> _Wire:
        if not _TIME_MACHINE.met():
            raise MissingExtra(f"sites need the package time-machine: {_TIME_MACHINE.remedy}")
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="palestra-site-"))
            self._server = await asyncio.start_unix_server(self._met, str(self._home / "socket"))
        folder = Path(tempfile.mkdtemp(prefix="warm-", dir=self._home))
        async with _Expected(self._hellos, "warm") as hello:
            with (folder.parent / f"{folder.name}.txt").open("wb") as written:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "palestra.worlds.web.sites.process", str(self._home / "socket")),
                    cwd=folder,
                    env=self._variables(),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=written,
                )
            ending = asyncio.ensure_future(self._process.wait())
            either: list[asyncio.Future[Any]] = [hello, ending]
            try:
                await asyncio.wait(either, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ending.cancel()
            if not hello.done():
                words = Path(written.name).read_text(errors="replace")[-_MOST_WORDS:].strip()  # noqa: ASYNC240 - what a process that failed wrote, once
                raise InfrastructureError(f"the process of {self._site.host} did not start: {words or 'it wrote no reason'}")
            wire, _ = hello.result()
        ready = await wire.ask(self._site.described(), seconds=START_SECONDS)
        if "error" in ready.head:
            wire.kill()
            raise EnvError(f"the site {self._site.host} could not be started:\n{ready.head['error']}")
        return wire

    def _variables(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        path = os.pathsep.join(map(os.path.abspath, search_path()))  # its working folder is another one
        return {**passed, "PYTHONPATH": path, "PYTHONHASHSEED": "0", **dict(self._site.variables)}

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the first message of a process, and hand its connection to the caller that waits for it."""
        try:
            hello = (await _frame(reader)).head
            waiting = self._hellos.get(str(hello.get("name")))
            if waiting is None or waiting.done():
                writer.close()
            else:
                self._wires = [wire for wire in self._wires if wire.alive]
                self._wires.append(_Wire(reader, writer, hello))
                waiting.set_result((self._wires[-1], hello))
        except (asyncio.IncompleteReadError, ConnectionError, ProcessLookupError):
            writer.close()

    async def _end_warm(self) -> None:
        warm, self._warm = self._warm, None
        process, self._process = self._process, None
        if warm is not None:
            warm.kill()
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def close(self) -> None:
        """End the warm process and all boxes, and remove their folders."""
        await self._end_warm()
        for wire in self._wires:
            await wire.closed()
        if self._server is not None:
            self._server.close()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)


class _Expected:
    """A process that is about to introduce itself by its name. It is ended if its caller has stopped waiting."""

    def __init__(self, hellos: "dict[str, asyncio.Future[tuple[_Wire, Mapping[str, Any]]]]", name: str) -> None:
        self._hellos, self._name = hellos, name

    async def __aenter__(self) -> "asyncio.Future[tuple[_Wire, Mapping[str, Any]]]":
        made: asyncio.Future[tuple[_Wire, Mapping[str, Any]]] = asyncio.get_running_loop().create_future()
        self._hellos[self._name] = made
        return made

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        made = self._hellos.pop(self._name)
        if error is not None and made.done() and not made.cancelled():
            made.result()[0].kill()
        made.cancel()


_shared: SharedPerLoop[Site, Boxes] = SharedPerLoop(Boxes, Boxes.close)


def shared_boxes(site: Site) -> AbstractAsyncContextManager[Boxes]:
    """Share the warm process of ``site`` among all users on the running loop; the last one to leave ends it."""
    return _shared.use(site)
