"""A hostile page against live listeners, on this machine and inside the jail: nothing of it may arrive."""

import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")

from playwright.async_api import Page
from tests.worlds.web.jail_attack import SITE

from palestra.errors import MissingExtra
from palestra.worlds.web.browsers import Browsers
from palestra.worlds.web.jail import chromium_program, write_jail

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
        command = [sys.executable if uid is None else python_for_all(), "-m", "tests.worlds.web.jail_attack"]
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


def test_a_missing_chromium_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALESTRA_CHROMIUM", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingExtra, match="apt-get install chromium"):
        chromium_program()
    with pytest.raises(MissingExtra, match="apt-get install bubblewrap"):
        write_jail(Path("/nowhere"), "/usr/bin/chromium", 3128)
