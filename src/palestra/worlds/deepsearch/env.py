r"""Deep search: one question, a search tool, and one answer.

The agent searches as often as its turns allow, and answers in ``<answer>…</answer>`` or ``\boxed{…}``. The first answer ends
the episode and pays 1 if it is right; of several answers in one message, the one that begins first counts. With ``retry`` a
wrong answer is called wrong and may be tried again, as in AgentGym: an agent that guesses learns from the environment when to
stop. This rule is there for comparison.

The oracle knows the way that the question describes, and nothing of the documents but what the tool has returned in this
episode: it searches for each entity by name, reads the next name in the passage with that title, and answers with the last.
"""

import copy
from collections.abc import Iterator
from html import escape
from typing import Any

from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.grading import exact_match, first_stated_answer
from palestra.tools import CallForm, find_calls
from palestra.trajectory import Content, Task, ToolCall, text_of
from palestra.trajectory.calls import parse_results
from palestra.worlds.deepsearch.graph import Question, Relation, fact_in
from palestra.worlds.deepsearch.index import World, invented, real, search_tool
from palestra.wrappers import ToolRules, UseTools

__all__ = ["DeepSearch"]

_RULES = ToolRules(forms=(CallForm.TOOL_CALL, CallForm.SEARCH_TAG))
_HOW = (
    "Answer the question. The facts stand in a collection of documents, and one document rarely holds all of them: search for "
    "what the question names, read, and search for what you found.\n"
    "When you know the answer, write it into <answer></answer>, as short as it can be: a name or a number."
)
_MOST_HOPS = 8
_LONGEST_ANSWER = 1000
"""Characters; a longer answer is wrong. To compare a megabyte takes half a second."""
_QUIET = "#8390a2"
_SPLITS = {"train": 0, "test": 1_000_000}
"""Split → what is added to the seed of the invented world."""
_ONCE = "Your first answer is final."
_AGAIN = "A wrong answer may be tried again."
_ALLOWED = "That was neither a search nor an answer. Write <search>words</search> or <answer>answer</answer>."


class _Asked(AsyncEnv):
    """The question alone: every action is an answer, or malformed."""

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)

    def __init__(self, retry: bool) -> None:
        self._retry = retry
        self.question: Question

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return f"{_HOW}\n{_AGAIN if self._retry else _ONCE}\n\nQuestion: {self.question.text}", {}

    async def step(self, action: str) -> Step:
        answer = first_stated_answer(action)
        if answer is None:
            return Step(_ALLOWED, 0.0, False, False, {"success": False, "format_error": True})
        right = len(answer) <= _LONGEST_ANSWER and exact_match(answer, self.question.answers)
        if self._retry and not right:
            return Step("That answer is wrong. You may search on and try again.", 0.0, False, False, {"success": False})
        return Step("", float(right), True, False, {"success": right})

    async def fork(self) -> "_Asked":
        return copy.copy(self)


class DeepSearch(AsyncEnv):
    """Answer a question of several hops with a search tool. The right answer pays 1.

    ``hops`` is the number of documents that have to be read. ``world`` is ``invented`` (``documents`` documents from
    ``world_seed``) or ``facts``. The tasks of the split ``test`` are about another invented world, which no task of ``train``
    shows; the panels play these. ``search`` is how the tool searches: ``bm25``, or ``dense?embedder=NAME`` and
    ``hybrid?embedder=NAME``; ``k=5`` among the options makes a search return five passages instead of three. With ``retry``, a
    wrong answer does not end the episode.
    """

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)
    floor = 0.01  # questions are drawn evenly by their last entity: the benchmark measures the commonest answer of each type

    def __init__(
        self,
        world: str = "invented",
        hops: int = 2,
        retry: bool = False,
        search: str = "bm25",
        documents: int = 10_000,
        world_seed: int = 0,
    ) -> None:
        if world not in ("invented", "facts"):
            raise UsageError(f'no world is called "{world}": write invented or facts')
        if not 1 <= hops <= _MOST_HOPS:
            raise UsageError(f"hops must be from 1 to {_MOST_HOPS}, got {hops}")
        self._invented, self._world_seed, self._documents, self._search = world == "invented", world_seed, documents, search
        self._world = self._world_of("train")
        self._hops = hops
        self._asked = _Asked(retry)
        self._desk = UseTools(self._asked, [search_tool(self._world, search)], _RULES)
        self._read: dict[str, str] = {}
        self._queries: dict[str, None] = {}

    def _world_of(self, split: str) -> World:
        if split not in _SPLITS:
            raise UsageError(f'deep search has the splits {" and ".join(_SPLITS)}, got "{split}"')
        return invented(self._world_seed + _SPLITS[split], self._documents) if self._invented else real()

    @property
    def question(self) -> Question:
        """The question of this episode."""
        return self._asked.question

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        if (world := self._world_of(self.task.split)) is not self._world:
            self._world = world
            self._desk = UseTools(self._asked, [search_tool(world, self._search)], _RULES)
        self._asked.question = self._world.graph.ask(self.rng, self._hops)
        self._read, self._queries = {}, {}
        observation, info = await self._desk.reset(task=self.task)
        return observation, {**info, "world": self._world.sha256, "type": self.question.type}

    async def step(self, action: str) -> Step:
        step = await self._desk.step(action)
        if step.info.get("role") == "tool":
            self._take_notes(action, text_of(step.observation))
        return step

    async def close(self) -> None:
        await self._desk.close()

    async def fork(self) -> "DeepSearch":
        twin = copy.copy(self)
        desk = await self._desk.fork()
        assert isinstance(desk, UseTools)
        asked = desk.unwrapped
        assert isinstance(asked, _Asked)
        twin._desk, twin._asked = desk, asked
        twin._read, twin._queries = dict(self._read), dict(self._queries)
        twin._rng, twin._action_rng = copy.deepcopy((self._rng, self._action_rng))
        return twin

    def render(self) -> str:
        """Return the question, the searches so far and the titles that they found as HTML for people."""
        searched = "".join(f"<div>search: {escape(query)}</div>" for query in self._queries)
        read = "".join(f'<div style="color:{_QUIET}">read: {escape(title)}</div>' for title in self._read)
        return f"<p><b>{escape(self.question.text)}</b></p>{searched}{read}"

    # ---------------------------------------------------------------------------------------------------------- players

    async def oracle(self) -> str:
        name, queries = self._started()
        for relation in self.question.relations:
            found = None if name is None or name not in self._read else fact_in(self._read[name], name, relation)
            if found is None:
                return self._next_search(queries if name is None else [name, *_telling(relation, s=name)])
            name, queries = found, []
        return _answer(str(name))

    def _started(self) -> tuple[str | None, list[str]]:
        """Return the name of the first entity, if it is known, and searches that find it."""
        start = self.question.start
        if start.relation is None:
            return start.name, []
        described = start.relation
        known = (name for name, text in self._read.items() if fact_in(text, name, described) == start.value)
        return next(known, None), [start.value, *_telling(described, o=start.value)]

    def _next_search(self, queries: list[str]) -> str:
        return next((_search(query) for query in queries if query not in self._queries), _answer("unknown"))

    async def sample_random_action(self) -> str:
        """A search for some entity or, one time in four, some name as the answer."""
        name = self._world.graph.names[int(self.action_rng.integers(len(self._world.graph.names)))]
        return _answer(name) if int(self.action_rng.integers(4)) == 0 else _search(name)

    def _take_notes(self, action: str, results: str) -> None:
        calls = (call for call in find_calls(action, _RULES.forms) if isinstance(call, ToolCall))
        self._queries.update((str(call.arguments.get("query")), None) for call in calls)
        for result in parse_results(results):
            self._read.update(_passages(result.text))


def _passages(text: str) -> Iterator[tuple[str, str]]:
    """The titles and texts of the passages that the search tool shows."""
    for passage in text.split("\n\n"):
        head, _, body = passage.partition("\n")
        number, _, title = head.partition("] ")
        if number.startswith("[") and title:
            yield title, body.rstrip("\n")


def _telling(relation: Relation, s: str = "", o: str = "") -> list[str]:
    """Searches in the words of the documents, for what is known of a fact."""
    return [" ".join(told.format(s=s, o=o).split()) for told in relation.told]


def _search(query: str) -> str:
    return f"<search>{query}</search>"


def _answer(answer: str) -> str:
    return f"<answer>{answer}</answer>"
