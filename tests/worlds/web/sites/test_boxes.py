"""Sites without a browser: warm processes, forks, frozen clocks, seeds, deaths. Nothing is left behind."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("time_machine", reason="time-machine is not installed")

from tests.worlds.web.sites.guestbook import ASYNC, BROKEN, COUNTER, GUESTS

from palestra.errors import EnvError, InfrastructureError, UsageError
from palestra.worlds.web.sites.boxes import Boxes, SiteBox
from palestra.worlds.web.sites.calling import Request, Response
from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.hosts import Sites
from palestra.worlds.web.sites.state import dump_hash


async def page(box: SiteBox, path: str = "/", method: str = "GET", body: bytes = b"") -> str:
    headers = [("Host", box.site.host), ("Content-Type", "application/x-www-form-urlencoded")]
    answer = await box.ask(Request(method, f"http://{box.site.host}{path}", headers, body))
    return f"{answer.status} {answer.body.decode()}"


def alive(pid: int) -> bool:
    """Whether a process is there, and not only its entry in the table of processes."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(pids: list[int]) -> bool:
    for _ in range(500):
        if not any(map(alive, pids)):
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.slow
async def test_every_episode_has_its_own_files_clock_and_randomness() -> None:
    pytest.importorskip("flask", reason="Flask is not installed")
    boxes = Boxes(GUESTS)
    try:
        first, second, again = await boxes.open(7), await boxes.open(8), await boxes.open(7)
        assert await page(first) == await page(again) != await page(second)
        assert "2026-01-01T09:00:00" in await page(second)
        assert await page(first, method="POST", body=b"name=Eve&town=Rome") != ""
        assert "Eve of Rome" in await page(first)
        assert "Eve of Rome" not in await page(again)
        hashes = [dump_hash(box.folder / "guests.sqlite") for box in (first, second, again)]
        assert len(set(hashes)) == 3
        copied = await first.fork()
        assert await page(copied) == await page(first)  # the random token too
        await page(copied, method="POST", body=b"name=Bob&town=Rome")
        assert "Bob" not in await page(first)
        home = first.folder.parent
        pids = [box._wire._pid for box in (first, second, again, copied)]
        for box in (first, second, again, copied):
            box.close()
        assert await gone(pids)
    finally:
        await boxes.close()
    assert not home.exists()


@pytest.mark.slow
async def test_a_copy_keeps_what_the_application_has_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    boxes = Boxes(COUNTER)
    try:
        box = await boxes.open(1)
        assert [await page(box), await page(box)] == ["200 <h1>call 2</h1>", "200 <h1>call 3</h1>"]  # the warm process had one
        copied = await box.fork()
        box.close()
        assert await page(copied) == "200 <h1>call 4</h1>"
        assert await page(copied, "/raise") == "500 The application has failed."
        assert "the application has a bug" in caplog.text
        assert "Traceback" in caplog.text
        assert await page(copied) == "200 <h1>call 5</h1>"
    finally:
        await boxes.close()


@pytest.mark.slow
async def test_an_asgi_application_is_called_too() -> None:
    boxes = Boxes(ASYNC)
    try:
        box = await boxes.open(1)
        assert await page(box, "/caf%C3%A9", "POST", b"hello") == "201 /café hello"
    finally:
        await boxes.close()


@pytest.mark.slow
async def test_a_dead_site_is_infrastructure_and_a_dead_warm_process_is_replaced() -> None:
    boxes = Boxes(COUNTER)
    try:
        box = await boxes.open(1)
        with pytest.raises(InfrastructureError, match="has ended"):
            await page(box, "/exit")
        with pytest.raises(InfrastructureError, match="has ended"):
            await page(box)
        assert boxes._process is not None
        os.kill(boxes._process.pid, 9)
        await boxes._process.wait()
        with pytest.raises(InfrastructureError, match="has ended"):
            await boxes.open(1)
        assert await page(await boxes.open(1)) == "200 <h1>call 2</h1>"
    finally:
        await boxes.close()


@pytest.mark.slow
async def test_a_site_that_cannot_be_seeded_says_why() -> None:
    boxes = Boxes(BROKEN)
    try:
        for seed in range(12):  # whichever process is faster
            with pytest.raises(EnvError, match=r"Traceback[^§]*no rows today"):
                await asyncio.wait_for(boxes.open(seed), 20)
    finally:
        await boxes.close()
    missing = Boxes(Site("no.test", "no_such_module:app"))
    try:
        with pytest.raises(EnvError, match="no_such_module"):
            await missing.open(1)
    finally:
        await missing.close()


async def test_a_process_that_ends_before_it_starts_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho the library is broken >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    boxes = Boxes(COUNTER)
    try:
        with pytest.raises(InfrastructureError, match=r"count\.test did not start: the library is broken"):
            await asyncio.wait_for(boxes.open(1), 20)
    finally:
        await boxes.close()


def test_a_site_is_named_in_words_that_another_process_can_read() -> None:
    with pytest.raises(UsageError, match="module:name"):
        Site("a.test", "not a reference")
    with pytest.raises(UsageError, match=r"shop\.test"):
        Site("http://a.test", "m:a")


def test_a_page_is_shown_again_without_its_cookies_and_without_the_fragment() -> None:
    sites = Sites({})
    page = Response(200, [("Content-Type", "text/html"), ("Set-Cookie", "a=b")], b"one")
    sites.pages["http://a.test/1"] = page
    assert sites.source("http://a.test/1#top") == ("http://a.test/1", page)
    assert sites.source("http://a.test/2") is None
    sites.show_again("http://a.test/1#top", page)
    assert sites.again == {"http://a.test/1": Response(200, [("Content-Type", "text/html")], b"one")}
