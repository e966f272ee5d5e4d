"""The call graph of an agent's episode in a real browser: calls in order, forks with their reason, sub-agents side by side."""

import re
from collections.abc import Iterator

import msgspec
import pytest
from playwright.sync_api import expect
from tests.viewer.browsing import HOSTILE, Watched, episode, serving, write_run

from palestra.trajectory import AgentCall, AgentRecord, Trajectory

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG = "The north door is locked. " * 40


def agent_episode() -> Trajectory:
    """A title, two helpers at once, a tool call, an answer that was asked for twice, a compaction, and a hostile reply."""

    def call(number: int, turn: int, link: str, parent: int | None = None, role: str = "agent", **more: object) -> AgentCall:
        return AgentCall(number, turn, "chat", link, role, parent, prompt_tokens=100 + number, tokens=7, **more)  # type: ignore[arg-type]

    calls = (
        call(0, 0, "start", role="auxiliary", text="A title"),
        call(1, 0, "start", text="I ask my helpers.", tools=("helper", "helper")),
        call(2, 0, "start", text="The key is north."),
        call(3, 0, "start", text=LONG),
        call(4, 0, "extended", 2, text="Surely north.", version=3),
        call(5, 0, "extended", 1, text="look"),
        call(6, 1, "extended", 5, text="go right", role="discarded"),
        call(7, 1, "repeated", 6, text="go left"),
        call(8, 2, "compaction", 7, text=HOSTILE, finish="length", tools=(HOSTILE,)),
    )
    links = {"start": 4, "extended": 3, "repeated": 1, "compaction": 1}
    record = AgentRecord(calls, (), links, replayed=2, refused=1, overridden={"temperature": 9}, ignored={HOSTILE: 1})
    return msgspec.structs.replace(episode(0, 0, ["look", "go left", "take"]), agent=record)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from serving(write_run(tmp_path_factory.mktemp("run"), agent_episode(), episode(1, 0, ["wait"])))


def test_calls_stand_in_order_and_conversations_side_by_side(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/0")
    watched.page.get_by_role("tab", name="Calls (9)").click()
    cards = watched.page.locator("article.call")
    expect(cards).to_have_count(9)
    expect(watched.page.locator(".call-turn")).to_have_count(3)
    at = cards.evaluate_all("cards => cards.map(card => card.getBoundingClientRect())")
    assert len({at[number]["x"] for number in (0, 1, 2, 3)}) == 4, "the title, the agent and its helpers have lanes"
    for number, parent in ((4, 2), (5, 1), (6, 5), (7, 6), (8, 7)):
        assert at[number]["x"] == at[parent]["x"]
        assert at[number]["y"] > at[parent]["y"]
    watched.assert_clean()


def test_a_card_names_link_role_tools_and_tokens(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/0/calls")
    cards = watched.page.locator("article.call")
    expect(cards.nth(8)).to_contain_text(re.compile("compaction.*after #8.*cut by the token limit", re.DOTALL))
    expect(cards.nth(7)).to_contain_text("again #7")
    expect(cards.nth(6)).to_contain_text("discarded")
    expect(cards.nth(1).locator(".chip")).to_have_count(2)
    expect(cards.nth(4)).to_contain_text("104 prompt + 7 sampled tokens · chat · weights 3")
    lead = re.compile("9 calls, 63 tokens sampled.*2 retries answered from memory · 1 refused", re.DOTALL)
    expect(watched.page.locator("p.lead")).to_contain_text(lead)
    expect(cards.nth(3).locator("pre")).to_be_hidden()
    cards.nth(3).locator("summary").click()
    expect(cards.nth(3).locator("pre")).to_contain_text(LONG.strip())
    watched.assert_clean()


def test_an_episode_without_an_agent_has_no_such_view(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/1")
    expect(watched.page.get_by_role("tab", name="Chat")).to_be_visible()
    expect(watched.page.get_by_role("tab", name="Calls")).to_have_count(0)
    watched.open(f"{url}#/r/0/e/1/calls")
    expect(watched.page.locator("p.empty")).to_contain_text("No agent of another framework")
