"""The wiki game: get from one article to another by following links."""

import os
from collections.abc import Sequence

from palestra.authoring.picture import Row
from palestra.errors import MissingExtra, UsageError
from palestra.suite.games.game import Game, MoveOutcome, boxed, require
from palestra.suite.games.link_graph import LONGEST_TITLE, LinkGraph, read_link_graph

__all__ = ["CORPUS_VARIABLE", "WikiGame"]

CORPUS_VARIABLE = "PALESTRA_WIKI_CORPUS"
"""The environment variable that names the corpus if ``corpus`` is not passed."""

_RANDOM_LEVELS: tuple[tuple[int, int, int], ...] = ((30, 2, 3), (15, 3, 5))
"""Turns, and the fewest and most links between start and target."""

_BACK = "back"

_MOST_DRAWS = 1000


class WikiGame(Game[str]):
    """Follow links from article to article until you reach the target; "back" undoes the last one.

    The target pays 1. ``corpus`` is the path of a JSONL file, one article per line, with ``title``, ``text`` and ``links`` (a
    list of titles). Start and target are at least ``nearest`` and at most ``farthest`` links apart; ``summary`` is the number
    of characters of an article that the player sees. If ``max_turns`` is ``None``, each task draws its own level. The oracle
    takes a shortest way.
    """

    def __init__(
        self,
        corpus: str | None = None,
        max_turns: int | None = 15,
        nearest: int = 3,
        farthest: int = 5,
        summary: int = 500,
    ) -> None:
        path = corpus or os.environ.get(CORPUS_VARIABLE)
        if not path:
            raise MissingExtra(
                f'the wiki game needs a corpus: pass corpus="articles.jsonl" or set {CORPUS_VARIABLE}. '
                'It holds one article per line: {"title": …, "text": …, "links": [title, …]}'
            )
        require(1 <= nearest <= farthest, f"1 <= nearest <= farthest must hold, got {nearest} and {farthest}")
        require(max_turns is None or max_turns >= farthest, f"max_turns must be at least farthest: {max_turns} < {farthest}")
        self.graph: LinkGraph = read_link_graph(path)
        self._levels = _RANDOM_LEVELS if max_turns is None else ((max_turns, nearest, farthest),)
        self._summary = summary

    def begin(self) -> None:
        self.max_turns, nearest, farthest = self.draw(self._levels)
        for _ in range(_MOST_DRAWS):
            start = int(self.rng.integers(len(self.graph.titles)))
            away = self.graph.distances_from(start, farthest)
            targets = [there for there, distance in away.items() if distance >= nearest]
            if targets:
                self.trail, self.target = [start], self.draw(targets)
                return
        raise UsageError(f"the corpus has too few pairs of articles that are {nearest} to {farthest} links apart")

    def rules(self) -> str:
        return (
            f"You are playing the wiki game.\n"
            f'Get from the article "{self._title}" to the article "{self.graph.titles[self.target]}" by following links, '
            f"within {self.max_turns} turns.\n"
            f"Think as long as you like, then give the title of a link inside \\boxed{{}}, or {boxed(_BACK)} to return to the "
            f"article before."
        )

    def view(self) -> str:
        text = " ".join(self.graph.texts[self.trail[-1]].split())
        shown = text if len(text) <= self._summary else text[: self._summary].rstrip() + " …"
        links = [f"- {self.graph.titles[there]}" for there in self._links]
        return "\n".join([f"Article: {self._title}", *([shown] if shown else []), "Links:", *(links or ["(none)"])])

    def picture(self) -> Sequence[Row]:
        return [
            f"{self._title} → {self.graph.titles[self.target]}",
            *(f"  {self.graph.titles[there]}" for there in self._links),
        ]

    @property
    def _title(self) -> str:
        return self.graph.titles[self.trail[-1]]

    @property
    def _links(self) -> tuple[int, ...]:
        return self.graph.links[self.trail[-1]]

    def read(self, answer: str) -> str | None:
        title = " ".join(answer.split())
        return title if 0 < len(title) <= LONGEST_TITLE else None

    def play(self, move: str) -> MoveOutcome:
        there = self.graph.find(move)
        if there in self._links:
            self.trail.append(there)
            said = f'At turn {self.turn}, you followed the link to "{self._title}".'
            if there == self.target:
                return MoveOutcome(f"{said} You are there. Well done!", 1.0, solved=True)
            return MoveOutcome(said)
        if move.casefold() != _BACK:
            return MoveOutcome(f"At turn {self.turn}, you named an article that this one has no link to.")
        if len(self.trail) == 1:
            return MoveOutcome(f"At turn {self.turn}, you wanted to go back, but this is where you began.")
        self.trail.pop()
        return MoveOutcome(f'At turn {self.turn}, you went back to "{self._title}".')

    def oracle(self) -> str:
        away = self.graph.distances_to(self.target)
        leading = [there for there in self._links if there in away]
        return boxed(self.graph.titles[min(leading, key=away.__getitem__)] if leading else _BACK)

    def sample_random_action(self) -> str:
        return boxed(self.graph.titles[self.draw_action(self._links)] if self._links else _BACK)
