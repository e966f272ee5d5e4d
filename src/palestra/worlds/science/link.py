"""A connection to a Java process, in the text protocol of py4j's ``GatewayServer``.

py4j's own client is not used. It sends a command again after some failures, which could take an action twice. It writes stack
traces to the root logger, and raises deprecation warnings of its own. ScienceWorld needs three commands only.
"""

import socket
from contextlib import suppress
from typing import NewType

__all__ = ["NOTHING", "JavaFailure", "JavaLink", "JavaRef", "flag", "long_number", "number", "reference", "text"]

JavaRef = NewType("JavaRef", str)
"""The name of a Java object in its process."""

NOTHING = "n"
"""Java's ``null`` as an argument of ``call``."""

Value = str | int | float | bool | None

_REFERENCES = ("r", "l")
"""Types of answers that are names of objects: an object, a list."""

_WHOLE = ("i", "L")
"""Types of answers that are whole numbers, of 32 and of 64 bits."""


class JavaFailure(Exception):
    """Java raised an exception; the process continues."""


class JavaLink:
    """A connection to the server at ``port``, for one thread. A failed connection raises ``OSError``."""

    def __init__(self, port: int, token: str, timeout: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout)
        self._rest = bytearray()
        """Bytes that have arrived after the last whole line."""
        self._command("A", token, end=False)

    def new(self, name: str, *args: str) -> JavaRef:
        """Make an object of the class ``name``."""
        return JavaRef(str(self._command("i", name, *args)))

    def call(self, target: str, method: str, *args: str) -> Value:
        """Call a method of an object, or of the class ``z:NAME``."""
        return self._command("c", target, method, *args)

    def items(self, listed: JavaRef) -> list[Value]:
        """Return the items of a list, and forget the list."""
        values = [self.item(listed, index) for index in range(self.length(listed))]
        self.forget(listed)
        return values

    def length(self, listed: JavaRef) -> int:
        """Return the length of a list."""
        return int(self.call(listed, "size") or 0)

    def item(self, listed: JavaRef, index: int) -> Value:
        """Return one item of a list."""
        return self.call(listed, "get", number(index))

    def forget(self, ref: JavaRef) -> None:
        """Let Java's garbage collector take an object."""
        self._command("m", "d", ref)

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._socket.close()

    def _line(self) -> bytes:
        # No buffered file: its lock, held by the thread that reads, would never be free in a forked child.
        while (end := self._rest.find(b"\n")) < 0:
            if not (read := self._socket.recv(1 << 16)):
                raise ConnectionError("the Java process closed the connection")
            self._rest += read
        line = bytes(self._rest[: end + 1])
        del self._rest[: end + 1]
        return line

    def _command(self, *parts: str, end: bool = True) -> Value:
        self._socket.sendall("".join(f"{part}\n" for part in (*parts, *("e" * end))).encode("utf-8"))
        line = self._line()
        answer = line.decode("utf-8").rstrip("\n").removeprefix("!")
        if answer[:1] != "y":
            raise JavaFailure(self._explained(answer))
        return _value(answer[1:2], answer[2:])

    def _explained(self, answer: str) -> str:
        """Return the text of an exception, which arrives as an object (``xro12``) or as text (``xs…``)."""
        if answer[:2] != "xr":
            return _unescaped(answer[2:])
        failure = JavaRef(answer[2:])
        text = self.call(failure, "toString")
        self.forget(failure)
        return str(text)


def text(value: str) -> str:
    """Return a text as an argument of ``call``."""
    escaped = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return f"s{escaped}"


def number(value: int) -> str:
    """Return a whole number as an argument of ``call``."""
    return f"i{value}"


def long_number(value: int) -> str:
    """Return a whole number of 64 bits as an argument of ``call``."""
    return f"L{value}"


def flag(value: bool) -> str:
    """Return a truth value as an argument of ``call``."""
    return f"b{str(value).lower()}"


def reference(ref: JavaRef) -> str:
    """Return an object as an argument of ``call``."""
    return f"r{ref}"


def _value(kind: str, content: str) -> Value:
    if kind == "s":
        return _unescaped(content)
    if kind == "b":
        return content == "true"
    if kind in _WHOLE:
        return int(content)
    if kind == "d":
        return float(content)
    return content if kind in _REFERENCES else None


def _unescaped(escaped: str) -> str:
    if "\\" not in escaped:
        return escaped
    parts = (part.replace("\\r", "\r").replace("\\n", "\n") for part in escaped.split("\\\\"))
    return "\\".join(parts)
