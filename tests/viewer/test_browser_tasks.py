"""What readers come for, step by step, on a wide screen and on a phone; growing runs; the report on a phone."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from tests.viewer.browsing import EPISODES, Watched, episode, serving, watching, write_run

from palestra.errors import Boundary
from palestra.evaluation import report_html, report_on
from palestra.foundation.encoding import encode_json, floats, ints
from palestra.trajectory import Completion, Failure, Phase, Segment, Span, StopReason, Task, Trajectory, Turn

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TURNS = 378
RAREST = 1238
"""Position of the token with the lowest probability among those of the long episode."""


def long_episode() -> Trajectory:
    turns = tuple(Turn(f"room {number}", Completion(f"step {number}")) for number in range(TURNS))
    spans = tuple(Span(8 * number + 4, 8 * number + 8, number, 0) for number in range(TURNS))
    logprobs = np.full(4 * TURNS, -0.1)
    place = RAREST // 8
    logprobs[4 * place + RAREST - spans[place].start] = -7.5
    segment = Segment(ints(np.arange(8 * TURNS)), spans, floats(logprobs))
    return Trajectory(Task("game:Long-v0", 1), StopReason.TERMINATED, turns, (segment,), "over", group=7, member=0)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two runs over the same tasks; the second has failures and a long episode."""
    folder = tmp_path_factory.mktemp("runs")
    failure = Failure(Boundary.POLICY, Phase.ACT, "ChatError", "429 Too many requests")
    failed = [Trajectory(Task("game:Demo-v0", seed), StopReason.ERROR, failures=(failure,)) for seed in (8, 9)]
    first = write_run(folder / "first", *EPISODES[:3])
    second = write_run(folder / "second", episode(0, 0, ["look", "go right"], solved=False), *failed, long_episode())
    yield from serving(first, second)


@pytest.fixture(params=[1400, 390], ids=["wide", "phone"])
def reader(browser: Browser, two_runs: str, request: pytest.FixtureRequest) -> Iterator[Watched]:
    for watched in watching(browser, two_runs, request.param):
        watched.open(two_runs)
        yield watched
        fits(watched)


def fits(watched: Watched) -> None:
    width = (watched.page.viewport_size or {"width": 0})["width"]
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width


def test_find_the_failed_episodes(reader: Watched) -> None:
    page = reader.page
    page.locator(".card", has_text="second").click()
    page.get_by_label("outcome").select_option("no score")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("429 Too many requests")
    rows.first.click()
    expect(page.get_by_text("429 Too many requests").first).to_be_visible()


def test_compare_two_runs(reader: Watched) -> None:
    page = reader.page
    cards = page.locator(".card")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text(re.compile(r"95 % interval"))
    cards.first.click()
    page.get_by_role("tab", name="Tasks").click()
    page.locator("tbody tr").first.click()
    expect(page.locator(".side-by-side")).to_contain_text("first")
    expect(page.locator(".side-by-side")).to_contain_text("second")
    expect(page.locator("#parting")).to_contain_text("first difference, in turn 2")


def test_reach_the_token_of_lowest_probability(reader: Watched) -> None:
    page = reader.page
    page.locator(".card", has_text="second").click()
    page.locator("tbody tr", has_text="game:Long-v0").click()
    page.get_by_role("tab", name="Tokens").click()
    page.get_by_role("button", name="Least likely token").click()
    expect(page.locator(".token.chosen")).to_have_text(str(RAREST))
    expect(page.locator(".token.chosen")).to_be_in_viewport()
    expect(page.locator(".readout")).to_contain_text("log-prob −7.500 (p = 0.001)")
    page.keyboard.press("l")
    expect(page.locator(".readout")).to_contain_text("log-prob −0.100")


def test_follow_a_long_episode(reader: Watched) -> None:
    page = reader.page
    page.locator(".card", has_text="second").click()
    page.locator("tbody tr", has_text="game:Long-v0").click()
    expect(page.locator("section.turn")).to_have_count(TURNS + 1)  # and the end
    for wanted in (100, 250):
        page.evaluate(f"document.getElementById('turn-{wanted - 1}').scrollIntoView()")
        here = page.locator(".rail .here")
        expect(here).to_have_text(re.compile(f"^({wanted}|{wanted - 1}|{wanted + 1})$"))
        expect(here).to_be_in_viewport()
    page.locator(".rail a", has_text=re.compile("^377$")).click()
    expect(page.get_by_text("step 376", exact=True)).to_be_in_viewport()
    page.keyboard.press("n")
    expect(page.get_by_text("step 377", exact=True)).to_be_in_viewport()


@pytest.mark.gate
def test_a_run_grows_while_it_is_read(browser: Browser, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "live", EPISODES[0])
    file = folder / "trajectories.jsonl"
    for url in serving(folder):
        for watched in watching(browser, url):
            page = watched.page
            watched.open(f"{url}#/r/0")
            expect(page.locator("tbody tr")).to_have_count(1)
            with open(file, "ab") as out:
                out.write(encode_json(EPISODES[1]) + b"\n" + encode_json(EPISODES[2])[:50])
            expect(page.locator("tbody tr")).to_have_count(2)
            expect(page.locator("#live")).to_have_text("+1 episodes")
            with open(file, "ab") as out:
                out.write(encode_json(EPISODES[2])[50:] + b"\n")
            expect(page.locator("tbody tr")).to_have_count(3)
            page.locator("tbody tr").first.click()
            expect(page.locator("section.turn")).to_have_count(4)  # three turns and the end
            page.locator("section.turn details summary").first.click()
            with open(file, "ab") as out:
                out.write(encode_json(EPISODES[0]) + b"\n")
            expect(page.locator("section.turn details[open]")).to_have_count(1)  # an open episode stays as it is
            page.go_back()
            expect(page.locator("tbody tr")).to_have_count(4)


def test_the_report_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    report = report_on([*EPISODES[:3], long_episode()])
    (tmp_path / "report.html").write_text(report_html(report))
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    name = page.locator("td", has_text="game:Long-v0").first
    box = name.bounding_box()
    assert box is not None
    assert box["width"] > 3 * box["height"]  # the name stands in one line, not one letter per line
    context.close()
