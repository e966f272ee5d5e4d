"""A hostile page against live listeners on this machine: nothing of it may arrive."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")

from palestra.envs.web.browsers import Browsers
from palestra.envs.web.jail import chromium_program, write_jail
from palestra.errors import MissingExtra

TRIES = Path(__file__).with_name("hostile_page.js").read_text().partition("\n")[2]


@asynccontextmanager
async def listeners() -> AsyncIterator[tuple[int, int, list[str]]]:
    """A TCP and a UDP port of this machine, and what arrives at them."""
    arrived: list[str] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append((await reader.readline()).decode(errors="replace").strip() or "a connection")
        writer.close()

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, address: object) -> None:
            arrived.append(f"{len(data)} bytes by UDP")

    server = await asyncio.start_server(accept, "0.0.0.0", 0)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Datagrams, local_addr=("0.0.0.0", 0))
    try:
        yield server.sockets[0].getsockname()[1], transport.get_extra_info("sockname")[1], arrived
    finally:
        transport.close()
        server.close()


def own_address() -> str:
    """The address of this machine in its network, or that of the loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def attack(browsers: Browsers, tcp: int, udp: int) -> int:
    """Open a hostile page that tries every way to both addresses, and return how many tries there were."""
    seat = await browsers.open()
    try:
        await seat.context.route(
            "http://site.test/**", lambda route: route.fulfill(body="<h1>x</h1>", content_type="text/html")
        )
        tried = 0
        for host in ("127.0.0.1", own_address()):
            page = await seat.context.new_page()
            await page.goto("http://site.test/")
            tried += len(await page.evaluate(TRIES, [host, tcp, udp]))
        await page.wait_for_timeout(1_500)  # what the page has started in the background
        return tried
    finally:
        await seat.close()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("jailed", [True, False], ids=["jail", "control"])
async def test_a_hostile_page_reaches_nothing(jailed: bool) -> None:
    """The control, without the jail, proves that the tries are real."""
    browsers = Browsers(jailed=jailed)
    try:
        async with listeners() as (tcp, udp, arrived):
            tried = await attack(browsers, tcp, udp)
            assert tried >= 80
            if jailed:
                assert arrived == []
            else:
                assert len(arrived) >= 10
    finally:
        await browsers.close()


def test_the_jail_names_its_browser_and_shares_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chromium = tmp_path / "opt" / "chromium"
    chromium.parent.mkdir()
    chromium.write_text("#!/bin/sh\n")
    chromium.chmod(0o755)
    monkeypatch.setenv("PALESTRA_CHROMIUM", str(chromium))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    program = write_jail(tmp_path, chromium_program(), 3128)
    words = program.read_text()
    assert "--unshare-all" in words
    assert f"--ro-bind {chromium.parent} {chromium.parent}" in words
    assert words.count("--bind ") == 1  # the profile
    assert stat.S_IMODE(os.stat(program).st_mode) == 0o755


def test_a_missing_chromium_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALESTRA_CHROMIUM", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingExtra, match="apt-get install chromium"):
        chromium_program()
    with pytest.raises(MissingExtra, match="apt-get install bubblewrap"):
        write_jail(Path("/nowhere"), "/usr/bin/chromium", 3128)


def test_the_headless_shell_is_used_before_the_whole_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALESTRA_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("chromium", "chromium-headless-shell"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert chromium_program() == str((tmp_path / name).resolve())
