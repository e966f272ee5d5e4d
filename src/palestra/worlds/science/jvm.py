"""One Java process that runs ScienceWorld for many episodes.

ScienceWorld's own wrapper starts a Java process per episode, with default options. Two things are different here:

- ``-XX:hashCode=2`` gives every Java object the same identity hash. Without it, the order of objects in a text, and even a
  temperature, depend on memory addresses, and two runs of the same actions differ.
- The simulator has global state that two threads must not use at once. All calls to a process therefore go through one
  thread. Episodes that take turns do not disturb each other, because ``shared.py`` gives each one its own global state.

The process ends when its standard input is closed: with ``end``, or with this process, however it ends.
"""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

from palestra.errors import EnvError, InfrastructureError
from palestra.foundation.confidential import worker_variables
from palestra.worlds.science.calls import CallThread
from palestra.worlds.science.link import JavaFailure, JavaLink, reference, text
from palestra.worlds.science.shared import OPEN_RANDOM, SharedState
from palestra.worlds.science.simulator import Simulator

__all__ = ["JAVA_OPTIONS", "Jvm", "Seat"]

R = TypeVar("R")

JAVA_OPTIONS = (
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    OPEN_RANDOM,
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Xms64m",
    "-Xmx512m",
)
"""The options of every Java process. An episode takes about 12 MB of the heap."""

_SPARE = 8
"""Simulators that a process keeps for the next episodes. To make one takes as long as to load a game."""

_SILENCE = 600.0
"""Seconds after which a call without an answer means that the process hangs. The longest gold path takes about a minute."""

_LAST_WORDS = 500
"""Bytes of Java's standard error that a failure shows."""

_GRACE = 3.0
"""Seconds that the process has to end by itself."""


class Jvm:
    """A Java process and the thread that calls it. The process starts with the first call."""

    def __init__(self) -> None:
        self._thread = CallThread("scienceworld")
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None
        """The standard error of the process."""
        self._last_words = ""
        """The end of what it wrote there, once it has ended."""
        self._shared: SharedState | None = None
        self.spare: list[Simulator] = []
        """Simulators without an episode. Only the thread uses them."""
        self._ending = threading.Lock()
        self.dead = False
        """It ended, or was ended. It is not started again."""
        self.seats = 0
        """Episodes that use it now."""

    @property
    def pid(self) -> int | None:
        """The id of the Java process, or ``None`` if it has not started."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether it can play: it runs, or has not started yet."""
        return not self.dead and (self._process is None or self._process.poll() is None)

    async def call(self, job: Callable[..., R], *args: Any) -> R:
        """Run ``job(shared, …)`` in the thread of this process.

        Raises:
            InfrastructureError: The Java process has ended.
            EnvError: The simulator raised an exception.
        """
        if self.dead:  # in a forked child, the thread does not exist
            raise InfrastructureError(self._obituary())
        try:
            waiting = self._thread.submit(self._guarded, job, *args)
        except RuntimeError:  # the thread takes no more calls
            raise InfrastructureError(self._obituary()) from None
        return await asyncio.wrap_future(waiting)

    def call_later(self, job: Callable[[SharedState], object]) -> None:
        """Run ``job(shared)`` after the calls that are waiting, if the process runs then. Does not wait for it."""
        if self.dead:
            return
        with suppress(RuntimeError):  # the process has ended, and with it what the job would do
            self._thread.submit(self._guarded_if_running, job)

    def _guarded_if_running(self, job: Callable[[SharedState], object]) -> None:
        if self._shared is not None and not self.dead:
            self._guarded(job)

    def _guarded(self, job: Callable[..., R], *args: Any) -> R:
        if self.dead:
            raise InfrastructureError(self._obituary())
        try:
            if self._shared is None:
                self._shared = self._start()
            if self.dead:  # it was ended while it started
                raise ConnectionError("ended at the start")
            return job(self._shared, *args)
        except JavaFailure as error:
            raise EnvError(f"ScienceWorld raised an exception: {str(error)[:500]}") from error
        except OSError as error:
            self.end()
            raise InfrastructureError(self._obituary()) from error

    def _obituary(self) -> str:
        wrote = f". Java wrote: {self._last_words}" if self._last_words else ""
        ended = f"the Java process {self.pid} of ScienceWorld ended or did not answer"
        return f"{ended}; a new one starts with the next episode{wrote}"

    def _start(self) -> SharedState:
        from py4j.java_gateway import find_jar_path
        from scienceworld.constants import BASEPATH, JAR_PATH

        server = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        command = ["java", *JAVA_OPTIONS, "-classpath", os.pathsep.join((find_jar_path(), JAR_PATH)), *server]
        self._complaints = TemporaryFile()  # noqa: SIM115, end() closes it. A pipe that nothing reads would fill up
        # A session of its own: Ctrl-C is for us, who then end the process.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            cwd=BASEPATH,
            env=worker_variables(),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            port, token = output.readline().strip(), output.readline().strip()
            if not port.isdigit():
                raise OSError(f"java did not start: {port.decode(errors='replace')!r}")
        try:
            link = JavaLink(int(port), token.decode(), _SILENCE)
            # The simulator prints much, which nothing reads. What Java itself has to say still arrives.
            nowhere = reference(link.new("java.io.FileOutputStream", text(os.devnull)))
            for kind in ("java.io.BufferedOutputStream", "java.io.PrintStream"):  # a stream without a buffer writes each word
                nowhere = reference(link.new(kind, nowhere))
            for stream in ("setOut", "setErr"):
                link.call("z:java.lang.System", stream, nowhere)
            return SharedState(link)
        except JavaFailure as error:
            raise OSError(f"java did not start: {error}") from error

    def end(self) -> None:
        """End the process and close the connection. A second call does nothing more."""
        self.dead = True
        self._thread.close()
        with self._ending:
            if self._shared is not None:
                self._shared.link.close()
            self._close_input()
            if self._process is not None:
                try:
                    self._process.wait(_GRACE)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            self._read_complaints()

    def _read_complaints(self) -> None:
        if self._complaints is not None:
            with self._complaints as written:
                written.seek(max(0, written.seek(0, os.SEEK_END) - _LAST_WORDS))
                self._last_words = " ".join(written.read().decode(errors="replace").split())
            self._complaints = None

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def forget(self) -> None:
        """Release the process in a forked child: it belongs to the parent, and must end with the parent."""
        self.dead = True
        if self._shared is not None:
            self._shared.link.close()
        self._close_input()
        if self._complaints is not None:
            self._complaints.close()
        if self._process is not None:
            self._process.returncode = 0  # it is no child of this process


class Seat:
    """The place of one episode in a Java process: a simulator of its own."""

    def __init__(self, jvm: Jvm) -> None:
        self.jvm = jvm
        self._simulator: Simulator | None = None
        self._left = False
        jvm.seats += 1

    async def call(self, job: Callable[..., R], *args: Any) -> R:
        """Run ``job(simulator, …)`` in the thread of the process."""
        return await self.jvm.call(self._seated, job, *args)

    def _seated(self, shared: SharedState, job: Callable[..., R], *args: Any) -> R:
        if self._simulator is None:
            self._simulator = self.jvm.spare.pop() if self.jvm.spare else Simulator(shared)
        return job(self._simulator, *args)

    def leave(self) -> None:
        """Leave the simulator to the next episode, without waiting for the process. A second call does nothing."""
        if self._left:
            return
        self._left = True
        self.jvm.seats -= 1
        self.jvm.call_later(self._free)

    def _free(self, _: SharedState) -> None:
        if self._simulator is None:
            return
        if len(self.jvm.spare) < _SPARE:
            self.jvm.spare.append(self._simulator)
        else:
            self._simulator.free()
        self._simulator = None
