"""An MCP server on the standard streams, for agents that start their servers as commands.

It is a relay to the tools of one episode: each line of standard input is a message, which goes to the gateway by HTTP. The
address and the key come from the environment variables ``PALESTRA_MCP_URL`` and ``PALESTRA_MCP_KEY``; a command line would show
the key to every user of the machine. The file uses only the standard library, so that it starts at once; it runs as a script.

Calls of tools are steps, so they are passed on in their order, one at a time. Other messages, such as a ping, do not wait.
"""

import http.client
import json
import os
import queue
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

__all__ = ["KEY", "URL"]

URL = "PALESTRA_MCP_URL"
KEY = "PALESTRA_MCP_KEY"


class _Relay:
    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        self._writing = threading.Lock()
        # No proxy: the gateway is on this machine, and a proxy would see the key.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def pass_on_all(self, lines: "queue.SimpleQueue[str | None]") -> None:
        """Pass on one message after the other, up to ``None``."""
        while (line := lines.get()) is not None:
            self.pass_on(line)

    def pass_on(self, line: str) -> None:
        """Send one message to the gateway and write its answer."""
        answer = self._answer(line)
        if answer:
            with self._writing:
                sys.stdout.write(answer + "\n")
                sys.stdout.flush()

    def _answer(self, line: str) -> str:
        try:
            request = urllib.request.Request(self._url, line.encode(), self._headers)  # noqa: S310 - the address of our own gateway
            with self._opener.open(request) as response:
                session = response.headers.get("mcp-session-id")
                if session:
                    self._headers["mcp-session-id"] = session
                text: str = response.read().decode()
                return text
        except (OSError, ValueError, http.client.HTTPException) as error:
            return _failed(line, f"the tools of the episode cannot be reached: {_detail(error)}")


def _detail(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        try:
            return error.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            pass
    return str(error)


def _read(line: str) -> dict[str, Any]:
    """Return a message; an empty one if ``line`` is none."""
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _failed(line: str, text: str) -> str:
    message = _read(line)
    if message.get("id") is None or "method" not in message:
        return ""
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": text}})


def _main() -> None:
    missing = [name for name in (URL, KEY) if not os.environ.get(name)]
    if missing:
        sys.exit(f"this command needs the variables of episode.mcp_environment; not set: {' and '.join(missing)}")
    relay = _Relay(os.environ[URL], os.environ[KEY])
    calls: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    calling = threading.Thread(target=relay.pass_on_all, args=(calls,), daemon=True)
    calling.start()
    running: list[threading.Thread] = []
    for line in sys.stdin:
        method = _read(line).get("method")
        if method == "initialize":
            relay.pass_on(line)  # its answer names the session of all later messages
        elif method == "tools/call":
            calls.put(line)
        else:
            # A thread per message: a step may take long, and a ping must not wait for it.
            running = [thread for thread in running if thread.is_alive()]
            running.append(threading.Thread(target=relay.pass_on, args=(line,), daemon=True))
            running[-1].start()
    calls.put(None)
    for thread in (calling, *running):
        thread.join(timeout=1.0)


if __name__ == "__main__":
    _main()
