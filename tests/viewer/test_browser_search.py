"""Long episodes and the search in a real browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.viewer.browsing import Watched, episode, serving, write_run

from palestra.trajectory import Completion, StopReason, Task, Trajectory, Turn

pytestmark = [pytest.mark.browser, pytest.mark.slow]


CALLS = """To call, write <tool_call>{"name": …}</tool_call> and wait.
<tool_response>
42
</tool_response>
That was <think>all</think>."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three runs: a long episode, one with tool traffic, and one with a rare word deep inside."""
    long = episode(0, 0, [f"move {number}" for number in range(120)])
    traffic = Trajectory(
        Task("game:Demo-v0", 1), StopReason.TERMINATED, (Turn(CALLS, Completion("Yes <tool_call>{}</tool_call>")),)
    )
    rare = episode(2, 0, [*(f"go on {number}" for number in range(40)), "the aardvark is here", "done"])
    hidden = episode(3, 0, ["<think>an aardvark, folded away</think>ok"])
    folder, runs = tmp_path_factory.mktemp("runs"), {"a": [long], "b": [traffic], "c": [episode(4, 0, ["no"]), rare, hidden]}
    yield from serving(*(write_run(folder / name, *kept) for name, kept in runs.items()))


def test_back_returns_to_the_list_after_many_turns(watched: Watched, url: str) -> None:
    page = watched.page
    watched.open(f"{url}#/r/0")
    page.locator("tbody tr").first.click()
    expect(page.locator("section.turn").first).to_be_visible()  # the address changes before the turns are drawn
    for _ in range(60):
        page.keyboard.press("n")
    expect(page).to_have_url(re.compile("turn=60$"))
    expect(page.locator("section.turn.here")).to_contain_text("move 59")
    page.go_back()
    expect(page).to_have_url(re.compile("#/r/0$"))
    expect(page.locator("tbody tr")).to_have_count(1)


def test_the_start_page_searches_all_runs_and_a_hit_is_marked(watched: Watched, url: str) -> None:
    page = watched.page
    watched.open(url)
    page.keyboard.press("/")
    page.keyboard.type("aardvark")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator(".lead")).to_contain_text("2 episodes in 1 of 3 runs")
    assert page.evaluate("document.activeElement.id") != "search"
    page.locator("tbody tr").first.click()
    expect(page).to_have_url(re.compile(r"#/r/2/e/1\?text=aardvark$"))
    expect(page.locator("mark")).to_have_text("aardvark")
    expect(page.locator("mark")).to_be_in_viewport()
    expect(page.locator(".rail .here")).to_have_text(re.compile("^(39|40|41|42)$"))
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("tbody tr a").nth(1).click()
    expect(page).to_have_url(re.compile(r"#/r/2/e/2\?text=aardvark$"))
    expect(page.locator(".folded mark")).to_be_visible()


def test_a_key_works_after_a_search(watched: Watched, url: str) -> None:
    page = watched.page
    watched.open(f"{url}#/r/2")
    page.keyboard.press("/")
    page.keyboard.type("go on 7")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile(r"#/r/2/e/1\?text=go\+on\+7$"))
    expect(page.locator("mark")).to_have_text("go on 7")


def test_the_prompts_own_example_of_a_call_is_not_folded(watched: Watched, url: str) -> None:
    page = watched.page
    watched.open(f"{url}#/r/1/e/0")
    said = page.locator(".said.env .body").first
    expect(said).to_contain_text('To call, write <tool_call>{"name": …}</tool_call> and wait.')
    expect(said.locator("details")).to_have_count(1)
    expect(said.locator("summary")).to_contain_text("tool answer")
    expect(page.locator(".said.policy summary")).to_contain_text("tool call")
