"""An MCP server on the standard streams, for agents that start their servers as commands.

It is a relay to the tools of one episode: each line of standard input is a message, which goes to the gateway by HTTP. The
address and the key come from the environment variables ``PALESTRA_MCP_URL`` and ``PALESTRA_MCP_KEY``; a command line would show
the key to every user of the machine. The file uses only the standard library, so that it starts at once; it runs as a script.
"""

import json
import os
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

    def pass_on(self, line: str) -> None:
        """Send one message to the gateway and write its answer."""
        answer = self._answer(line)
        if answer:
            with self._writing:
                sys.stdout.write(answer + "\n")
                sys.stdout.flush()

    def _answer(self, line: str) -> str:
        request = urllib.request.Request(self._url, line.encode(), self._headers)
        try:
            with urllib.request.urlopen(request) as response:
                session = response.headers.get("mcp-session-id")
                if session:
                    self._headers["mcp-session-id"] = session
                text: str = response.read().decode()
                return text
        except (OSError, ValueError) as error:
            detail = error.read().decode("utf-8", "replace") if isinstance(error, urllib.error.HTTPError) else str(error)
            return _failed(line, f"the tools of the episode cannot be reached: {detail}")


def _failed(line: str, text: str) -> str:
    try:
        message: Any = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(message, dict) or message.get("id") is None or "method" not in message:
        return ""
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": text}})


def _main() -> None:
    relay = _Relay(os.environ[URL], os.environ[KEY])
    running: list[threading.Thread] = []
    for line in sys.stdin:
        if '"initialize"' in line:
            relay.pass_on(line)  # its answer names the session of all later messages
            continue
        # A thread per message: a step may take long, and a ping must not wait for it.
        running = [one for one in running if one.is_alive()]
        thread = threading.Thread(target=relay.pass_on, args=(line,), daemon=True)
        thread.start()
        running.append(thread)
    for thread in running:
        thread.join(timeout=1.0)


if __name__ == "__main__":
    _main()
