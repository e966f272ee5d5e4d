"""The process of a site: warm, or of one episode. Run as ``python -m palestra.worlds.web.sites.process SOCKET``.

Every such process does two things, one at a time: it lets the application answer requests, and it forks. A fork copies the
working folder and continues there, in its own connection. So the warm process makes episodes, and the process of an episode
makes a copy of the running episode, with everything that its application holds in memory.

It ends when the other side closes the connection, for whatever reason. Nothing has to be killed, unless the application hangs.
"""

import ctypes
import gc
import os
import random
import resource
import shutil
import signal
import socket
import sys
import traceback
from typing import Any

from palestra.foundation.references import resolve
from palestra.worlds.web.sites.calling import Caller, Request, Response, asgi_caller, wsgi_caller
from palestra.worlds.web.sites.frames import Frame, encode, receive

__all__ = ["main"]

CPU_SECONDS = 3600
"""An application that hangs after Palestra has left ends after this time."""
_PR_SET_CHILD_SUBREAPER = 36


class _Connection:
    """One connection to Palestra, on which it has introduced itself."""

    def __init__(self, path: str, hello: dict[str, Any]) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.incoming = self.socket.makefile("rb")
        self.send({**hello, "pid": os.getpid()})

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        self.socket.sendall(encode(head, body))

    def close(self) -> None:
        self.incoming.close()
        self.socket.close()


class _Process:
    """The application, in this process."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.about = about
        self.application = resolve(about["application"])
        self.caller: Caller | None = None
        self.clock: Any = None
        self.bound: list[tuple[dict[str, Any], str]] = []
        """Where modules keep a name of their own for ``os.urandom``, such as after ``from os import urandom``."""

    def warm(self) -> None:
        """Prepare the files that all episodes share, and answer the first pages."""
        import time_machine

        self.clock = time_machine.travel(self.about["now"], tick=False).start()
        if self.about["prepare"]:
            resolve(self.about["prepare"])()
        if self.about["seed"]:
            resolve(self.about["seed"])  # imports it
        for path in self.about["first_pages"]:
            self.answer(Request("GET", f"http://{self.about['host']}{path}", [("Host", self.about["host"])]))
        self.caller = None  # the event loop of an ASGI application is not for the forks
        self.bound = _names_of(os.urandom)
        gc.collect()
        gc.freeze()

    def answer(self, asked: Request) -> tuple[Response, str]:
        """Return the answer of the application, and the traceback if it has failed."""
        if self.caller is None:
            self.caller = (asgi_caller if self.about["asgi"] else wsgi_caller)(self.application)
        if self.about["tick"] and asked.method not in ("GET", "HEAD"):
            self.clock.shift(self.about["tick"])
        try:
            return self.caller(asked), ""
        except Exception:  # noqa: BLE001 - the application may raise anything; the traceback is reported
            return Response(500, [("Content-Type", "text/plain")], b"The application has failed."), traceback.format_exc()

    def begin(self, seed: int, options: dict[str, Any]) -> None:
        """Begin an episode: everything random comes from its seed from now on."""
        source = random.Random(seed)  # noqa: S311 - an episode repeats by its seed
        for names, name in self.bound:
            names[name] = source.randbytes
        random.seed(seed)
        if self.about["seed"]:
            resolve(self.about["seed"])(seed, **options)


def _names_of(function: Any) -> list[tuple[dict[str, Any], str]]:
    """Return every module-level name of ``function``, in all modules that are loaded."""
    spaces = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
    return [(names, name) for names in spaces for name, value in list(names.items()) if value is function]


def main(path: str) -> None:
    """Be the warm process of the site that the other side of the socket describes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are reaped by the kernel
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # forks of forks too
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection = _Connection(path, {"name": "warm"})
    about = receive(connection.incoming)
    if about is None:
        return
    try:
        process = _Process(about.head)
        process.warm()
    except BaseException:  # noqa: BLE001 - the application may raise anything; the traceback is reported
        connection.send({"error": traceback.format_exc()})
        return
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stderr.fileno())  # what it writes while it starts is kept; of episodes it would not end
    connection.send({"ready": True})
    _serve(process, connection)


def _serve(process: _Process, connection: _Connection) -> None:
    while frame := receive(connection.incoming):
        if frame.head["do"] == "fork":
            connection = _forked(process, connection, frame.head)
        else:
            connection.send(*_answered(process, frame))


def _answered(process: _Process, frame: Frame) -> tuple[dict[str, Any], bytes]:
    head = frame.head
    headers = [(name, value) for name, value in head["headers"]]
    answer, failure = process.answer(Request(head["method"], head["url"], headers, frame.body))
    return {"status": answer.status, "headers": answer.headers, "failure": failure}, answer.body


def _forked(process: _Process, connection: _Connection, order: dict[str, Any]) -> _Connection:
    """Fork. Return the connection to continue with: the old one, or in the fork its own."""
    if os.fork():
        connection.send({"forked": True})
        return connection
    try:
        connection.close()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        hello = {"name": order["name"]}
        try:
            shutil.copytree(".", order["folder"], dirs_exist_ok=True)
            os.chdir(order["folder"])
            if order["seed"] is not None:
                process.begin(order["seed"], order["options"])
        except BaseException:
            failed = _Connection(order["socket"], {**hello, "error": traceback.format_exc()})
            failed.incoming.read()  # the other side looks this process up before it reads the error, and then hangs up
            raise
        return _Connection(order["socket"], hello)
    except BaseException:  # noqa: BLE001 - the application may raise anything; the traceback is reported
        os._exit(1)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (ConnectionError, KeyboardInterrupt):
        pass
    finally:
        os._exit(0)  # what the application has registered for the end is for its warm process at most
