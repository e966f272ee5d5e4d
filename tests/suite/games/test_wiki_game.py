import json
import re
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.errors import MissingExtra, SchemaError, UsageError
from palestra.suite.games.link_graph import read_link_graph
from palestra.suite.games.wiki_game import CORPUS_VARIABLE, WikiGame

SMALL = Path(__file__).parent / "small_wiki.jsonl"
PAGES = {page["title"]: page for page in map(json.loads, SMALL.read_text().splitlines())}


def distance(start: str, target: str) -> int | None:
    away, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for there in PAGES[here]["links"]:
            if there not in away:
                away[there] = away[here] + 1
                queue.append(there)
    return away.get(target)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from([*PAGES, "back", "Nowhere"]), min_size=1, max_size=12), st.data())
def test_moves_follow_the_links(seed: int, moves: list[str], data: st.DataObject) -> None:
    game = WikiGame(str(SMALL), 10, 2, 4)
    observation, _ = game.reset(seed=seed)
    found = re.search(r'article "(\w+)" to the article "(\w+)"', observation)
    assert found is not None
    trail, target = [found[1]], found[2]
    assert 2 <= (distance(trail[0], target) or 0) <= 4
    for turn, guess in enumerate(moves, start=1):
        links = [link for link in PAGES[trail[-1]]["links"] if link != trail[-1]]
        move = data.draw(st.sampled_from([*links, guess]))
        step = game.step(f"\\boxed{{{move.upper()}}}")
        if move in links:
            trail.append(move)
        elif move == "back" and len(trail) > 1:
            trail.pop()
        assert f"Article: {trail[-1]}\n" in str(step.observation)
        won = trail[-1] == target
        assert (step.reward, step.terminated, step.truncated) == (float(won), won, not won and turn == 10)
        if won or turn == 10:
            return


def test_without_a_corpus_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CORPUS_VARIABLE, raising=False)
    with pytest.raises(MissingExtra, match=CORPUS_VARIABLE):
        palestra.make("game:WikiGame-v0")
    monkeypatch.setenv(CORPUS_VARIABLE, str(SMALL))
    assert "Article:" in str(palestra.make("game:WikiGame-v0").reset(seed=0)[0])


@pytest.mark.parametrize(
    "line",
    [
        *(b"{", b'{"text": "no title"}', b'{"title": 3}', b'{"title": "A", "links": "B"}', b"[]"),
        *(rb'{"title": "\ud800"}', b'{"title": "\xff"}'),
    ],
)
def test_a_broken_corpus_names_its_line(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_bytes(b'{"title": "A", "links": ["B"]}\n\n' + line + b"\n")
    with pytest.raises(SchemaError, match="line 3"):
        read_link_graph(str(file))


def test_links_are_cleaned(tmp_path: Path) -> None:
    file = tmp_path / "wiki.jsonl"
    file.write_text(
        '{"title": "A", "links": ["b", "B", "A", "Gone", "C\\nD"]}\n{"title": " B "}\n{"title": "c d"}\n'
        '{"title": "bad {", "links": ["A"]}\n{"title": "a", "links": ["B"]}\n'
    )
    graph = read_link_graph(str(file))
    assert graph.titles == ("A", "B", "c d")
    assert graph.links == ((1, 2), (), ())
    with pytest.raises(UsageError, match="too few pairs of articles"):
        WikiGame(str(file), 15, 3, 5).reset(seed=0)
    with pytest.raises(SchemaError, match="cannot be read"):
        WikiGame(str(tmp_path / "absent.jsonl"))
