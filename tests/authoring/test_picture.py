"""Pictures of boards: safe for any text of a game, and equal to what the player sees."""

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.suite.games.test_every_game import PLAYED, built

from palestra.authoring.picture import Tile, drawn_html, drawn_svg, rows_of

ATTACK = '<script>alert(1)</script><img src=x onerror="alert(2)">" style="x'


class _Seen(HTMLParser):
    """Which tags a page has, with which attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("id", PLAYED)
def test_every_game_draws_itself_at_every_turn(id: str) -> None:
    game = built(id)
    game.reset(seed=3)
    drawn, views = [game.render()], {game.view()}
    for _ in range(4):
        step = game.step(game.oracle())
        drawn.append(game.render())
        views.add(game.view())
        ElementTree.fromstring(drawn_svg(game.picture()))
        if step.terminated or step.truncated:
            break
    for page in drawn:
        seen = _Seen(page)
        assert seen.tags <= {"div", "span"}
        assert seen.attributes <= {"style"}
        assert seen.text.strip()
        assert len(page) < 40_000
    # A game may show nothing that changes, such as Countdown its numbers.
    changed = len(set(drawn)) > 1 or len(views) == 1
    assert changed, f"view() of {id} changes and its picture does not: draw in picture() what a move changes"


@given(st.text(max_size=60), st.text(max_size=8))
def test_whatever_a_game_says_is_only_text(words: str, mark: str) -> None:
    rows = [*rows_of(f"{words}\n{mark} . {mark}"), ATTACK, [Tile(ATTACK), Tile(mark, "label")]]
    seen = _Seen(drawn_html(rows))
    assert seen.tags <= {"div", "span"}
    assert seen.attributes <= {"style"}
    assert ATTACK in seen.text


def test_boards_are_read_off_the_view() -> None:
    caption, head, row = rows_of("The field:\n     0  1  2  3  4\n 0   .  F  [X]  12  .")
    assert caption == "The field:"
    assert [tile.kind for tile in head] == ["label"] * 6  # type: ignore[union-attr]
    assert row == [Tile("0", "label"), Tile(".", "quiet"), Tile("F"), Tile("X", "good"), Tile("12"), Tile(".", "quiet")]
