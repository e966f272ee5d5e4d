"""A hostile page against live listeners: on this machine, and on the loopback of its jail, where a neighbor's port would be.

``python -m tests.worlds.web.jail_attack`` prints the findings as JSON: how many ways were tried, what arrived, and what arrived
in the controls, which prove that the tries are real and that the listeners listen. One control is a context in the jail without
the proxy, the other one is a browser without the jail.
"""

import asyncio
import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from palestra.worlds.web import jail
from palestra.worlds.web.browsers import Browsers
from palestra.worlds.web.front import PORT, Headers

TRIES = Path(__file__).with_name("hostile_page.js").read_text().partition("\n")[2]
SITE, NEIGHBOR = "http://site.localhost/", "http://neighbor.test/"
"""The hostile page has an address of this machine, so that the browser gives it what only safe pages get: service workers."""
_TWO_MORE = """
import socket
tcp = socket.create_server(("127.0.0.1", 0))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
"""
"""Opens two ports on the loopback of the jail before its launcher opens the proxy's."""

Target = tuple[str, int, int]
"""A host, a TCP port and a UDP port."""


class Answers:
    """Answers one address of one context, and keeps what it was asked."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.asked: list[str] = []

    async def visit(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        """Answer a request."""
        self.asked.append(url)
        status, kind, text = answer(url, self._address)
        return status, [*kind.items()], text.encode()


def answer(url: str, address: str) -> tuple[int, dict[str, str], str]:
    """Return the page of ``address``, which wants reports sent to the target in its query, or its service worker."""
    path, _, target = url.partition("?")
    if path == f"{address}worker.js":
        return 200, {"Content-Type": "text/javascript"}, f'fetch("{unquote(target)}/service", {{mode: "no-cors"}})'
    policy = f"default-src 'none'; report-uri {unquote(target)}/report"
    headers = {"Content-Type": "text/html"} | ({"Content-Security-Policy-Report-Only": policy} if target else {})
    return (200 if path == address else 404), headers, "<!doctype html><head></head><h1>x</h1>"


class Listeners:
    """A TCP and a UDP port, and what arrives at them."""

    def __init__(self) -> None:
        self.arrived: list[str] = []

    async def listen(self, tcp: socket.socket, udp: socket.socket) -> tuple[int, int]:
        """Listen, and return the numbers of both ports."""
        arrived = self.arrived

        class Datagrams(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, address: object) -> None:
                arrived.append(f"{len(data)} bytes by UDP")

        self._server = await asyncio.start_server(self._accept, sock=tcp)
        self._transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Datagrams, sock=udp)
        return int(tcp.getsockname()[1]), int(udp.getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.arrived.append((await reader.readline()).decode(errors="replace").strip() or "a connection")
        writer.close()

    def taken(self) -> list[str]:
        """Return what has arrived since the last call."""
        found = list(self.arrived)
        self.arrived.clear()
        return found


def own_address() -> str:
    """The address of this machine in its network, or that of the loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def opened_inside() -> list[socket.socket]:
    """Let every jail open two more ports, and return the list in which they will be."""
    kept: list[socket.socket] = []
    launch, receive = jail._LAUNCH, socket.recv_fds
    jail._LAUNCH = _TWO_MORE + launch.replace("[listener.fileno()]", "[listener.fileno(), tcp.fileno(), udp.fileno()]")
    assert "udp.fileno()" in jail._LAUNCH

    def received(connection: socket.socket, size: int, number: int) -> Any:
        data, handles, flags, address = receive(connection, size, number + 2)
        kept.extend(socket.socket(fileno=handle) for handle in handles[number:])
        return data, handles[:number], flags, address

    socket.recv_fds = received  # type: ignore[assignment]
    return kept


async def _fulfill(route: Any) -> None:
    status, headers, text = answer(route.request.url, SITE)
    await route.fulfill(status=status, headers=headers, body=text)


async def attack(browsers: Browsers, targets: Iterable[Target], options: dict[str, Any]) -> int:
    """Open a hostile page that tries every way to the targets, and return how many tries there were."""
    # Otherwise the browser itself would refuse most of the tries, and they would show nothing about the jail.
    seat = await browsers.open({**options, "permissions": ["local-network-access"]})
    try:
        if not options:
            await seat.context.route(f"{SITE}**", _fulfill)
        tried = 0
        for target in targets:
            page = await seat.context.new_page()
            await page.goto(f"{SITE}?{quote(f'http://{target[0]}:{target[1]}', safe='')}")
            tried += len(await page.evaluate(TRIES, list(target)))
        await page.wait_for_timeout(1_500)  # what the page has started in the background
        return tried
    finally:
        await seat.close()


async def main() -> None:
    inside = opened_inside()
    browsers, free = Browsers(), Browsers(jailed=False)
    host, inner = Listeners(), Listeners()
    own, neighbor = Answers(SITE), Answers(NEIGHBOR)
    try:
        outer_udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        outer_udp.bind(("0.0.0.0", 0))
        outside = await host.listen(socket.create_server(("0.0.0.0", 0)), outer_udp)
        neighbors = await browsers.open({"proxy": browsers.front.admit(neighbor).proxy()})
        page = await neighbors.context.new_page()
        await page.goto(NEIGHBOR)
        before = len(neighbor.asked)
        ports = await inner.listen(*inside)
        targets: list[Target] = [
            *((name, *outside) for name in ("127.0.0.1", own_address())),
            *((name, *ports) for name in ("127.0.0.1", "localhost")),
            *((name, number, ports[1]) for name, number in (("127.0.0.1", PORT), ("neighbor.test", 80))),
        ]
        tried = await attack(browsers, targets, {"proxy": browsers.front.admit(own).proxy()})
        found = {
            "uid": os.getuid(),
            "tried": tried,
            "host": host.taken(),
            "inside": inner.taken(),
            "neighbor": neighbor.asked[before:],
        }
        await attack(browsers, targets[2:3], {})
        found["control inside"] = inner.taken()
        await attack(browsers, targets[4:], {})  # around the proxy, to its own port: it asks for a password
        found["neighbor around"] = neighbor.asked[before:]
        found["neighbor before"] = before
        await attack(free, targets[:1], {})
        found["control host"] = host.taken()
        print(json.dumps(found))
    finally:
        await browsers.close()
        await free.close()


if __name__ == "__main__":
    asyncio.run(main())
