"""Runs, reports, columns and single episodes in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.viewer.browsing import EPISODES, HOSTILE, Watched, episode, serving, write_run

from palestra.errors import Boundary
from palestra.foundation.encoding import encode_json
from palestra.trajectory import Failure, Phase, StopReason, Task, Trajectory

pytestmark = [pytest.mark.browser, pytest.mark.slow]


PROSE = """# Plan
Take **two** steps, *then* `stop`; see [the page](https://evil.example/x) and ![a picture](https://evil.example/p.png).

- first <img src=x onerror=window.hacked=1>
  - second
1. third

| a | b |
|---|---|
| 1 | <script>window.hacked=1</script> |

> quoted

```python
print("**as written**")
```
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs: an evaluation with a report, a failure and Markdown in it, and a rollout without a config."""
    shelf = tmp_path_factory.mktemp("shelf")
    failure = Failure(Boundary.POLICY, Phase.ACT, "ChatError", "401 Incorrect API key\nask for another")
    failed = Trajectory(Task("game:Demo-v0", 8), StopReason.ERROR, failures=(failure,))
    runs = {"evaluated": [*EPISODES[:3], failed, episode(5, 0, [PROSE])], "rolled": [EPISODES[0]]}
    for name, kept in runs.items():
        write_run(shelf / name, *kept)
    config = {"run": "evaluation", "policy": "gpt-x", "seed": 3, "about": {"temperature": "0.7", "note": HOSTILE}}
    (shelf / "evaluated" / "config.json").write_bytes(encode_json(config))
    (shelf / "evaluated" / "report.html").write_text(f"<style>p {{color: red}}</style><p>The report.</p>{HOSTILE}")
    return shelf


@pytest.fixture(scope="module")
def shelf_url(shelf: Path) -> Iterator[str]:
    yield from serving(shelf)


@pytest.fixture
def shelved(browser: Browser, shelf_url: str) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    watched = Watched(context.new_page(), shelf_url)
    yield watched
    context.close()
    watched.trouble = [found for found in watched.trouble if not found.startswith(f"request blob:{shelf_url}")]
    assert watched.trouble == []


def test_a_card_has_kind_model_date_and_interval(shelved: Watched, shelf_url: str) -> None:
    shelved.open(shelf_url)
    cards = shelved.page.locator(".card")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text(re.compile(r"evaluation.*gpt-x · 20\d\d-\d\d-\d\d \d\d:\d\d UTC"))
    expect(cards.first).to_contain_text(re.compile(r"score, 95 % interval0\.\d\d \[0\.\d\d, \d\.\d\d\]"))
    expect(cards.first).to_contain_text("without a score1")


def test_a_run_shows_its_settings_and_links_to_its_report(shelved: Watched, shelf_url: str) -> None:
    page = shelved.page
    shelved.open(f"{shelf_url}#/r/0")
    page.locator("summary", has_text="settings").click()
    expect(page.locator("dl.pairs")).to_contain_text("about.temperature0.7")
    page.get_by_role("link", name="Report").click()
    expect(page.locator("p", has_text="The report.")).to_have_css("color", "rgb(255, 0, 0)")
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("origin") == "null"
    shelved.trouble = [found for found in shelved.trouble if "sandbox" not in found and "Content Security Policy" not in found]


def test_columns_are_chosen_and_remembered(shelved: Watched, shelf_url: str) -> None:
    page = shelved.page
    shelved.open(f"{shelf_url}#/r/0")
    heads = page.locator("thead th")
    expect(heads.filter(has_text="member")).to_have_count(0)
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("member").check()
    expect(heads.filter(has_text="member")).to_have_count(1)
    page.get_by_label("task").uncheck()
    expect(heads.filter(has_text="task")).to_have_count(0)
    expect(page).to_have_url(re.compile("columns=.*member"))
    shelved.open(f"{shelf_url}#/r/1")
    expect(heads.filter(has_text="member")).to_have_count(1)
    page.get_by_role("button", name="Default columns").click()
    expect(heads.filter(has_text="member")).to_have_count(0)


def test_up_returns_to_the_filtered_list(shelved: Watched, shelf_url: str) -> None:
    page = shelved.page
    shelved.open(f"{shelf_url}#/r/0?outcome=solved&sort=turns:down")
    page.locator("tbody tr").first.click()
    expect(page.locator("section.turn").first).to_be_visible()
    page.keyboard.press("g")
    expect(page.locator(".member").first).to_be_visible()
    page.keyboard.press("u")
    expect(page).to_have_url(re.compile(r"#/r/0\?outcome=solved&sort=turns:down$"))
    expect(page.locator("tbody tr")).to_have_count(3)


def test_markdown_is_rendered_on_request_and_stays_inert(shelved: Watched, shelf_url: str) -> None:
    page = shelved.page
    shelved.open(f"{shelf_url}#/r/0/e/4")
    said = page.locator(".said.policy .body")
    expect(said).to_contain_text("Take **two** steps")
    page.keyboard.press("m")
    shown = said.locator(".markdown")
    expect(shown.locator("b")).to_have_text("two")
    expect(shown.locator("code")).to_have_text("stop")
    expect(shown.locator("pre")).to_have_text('print("**as written**")')
    expect(shown.locator("td").last).to_have_text("<script>window.hacked=1</script>")
    expect(shown.locator(".item")).to_have_count(3)
    expect(shown).to_contain_text("the page (https://evil.example/x)")
    assert shown.locator("a, img, script, [onerror]").count() == 0
    shelved.assert_clean()
    page.get_by_role("button", name="Markdown").click()
    expect(said).to_contain_text("Take **two** steps")


SLOW_TO_PARSE = ["*", "**", "`", "[", "![](", "> ", "- ", "|", "```\n", "*a", "# ", " ", "|-|\n", ">\n", "- a\n"]


def test_markdown_takes_linear_time(shelved: Watched, shelf_url: str) -> None:
    shelved.open(shelf_url)
    timed = """(unit) => {
        const began = performance.now();
        markdownNodes(unit.repeat(20000).slice(0, 20000));
        return (performance.now() - began) / 1000;
    }"""
    seconds = {unit: shelved.page.evaluate(timed, unit) for unit in SLOW_TO_PARSE}
    assert max(seconds.values()) < 2.0, seconds


def test_an_episode_is_copied_and_downloaded(shelved: Watched, shelf: Path, shelf_url: str) -> None:
    page = shelved.page
    shelved.open(f"{shelf_url}#/r/0/e/0")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "## Turn 2 (reward 0.00)" in copied
    assert "### Policy\ngo left" in copied
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "evaluated-episode-0.json"
    lines = (shelf / "evaluated" / "trajectories.jsonl").read_bytes().splitlines()
    assert Path(download.value.path()).read_bytes() == lines[0]


@pytest.mark.parametrize(
    "view", ["", "#/r/0", "#/r/0?list=tasks", "#/r/0?list=envs", "#/r/0/e/4", "#/r/0/e/0/tokens", "#/?text=go"]
)
def test_every_page_fits_a_phone(browser: Browser, shelf_url: str, view: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    watched = Watched(context.new_page(), shelf_url)
    watched.open(shelf_url + view)
    expect(watched.page.locator("main")).not_to_be_empty()
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390
    if "/e/" not in view:
        expect(watched.page.locator(".badge, td.right, dd").filter(has_text=re.compile(r"^\d\.\d\d")).first).to_be_in_viewport()
    watched.assert_clean()
    context.close()
