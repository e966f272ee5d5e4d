"""``TreeSearch``: try actions in copies of the environment, and play the path that did best.

A node is a state of the environment. The policy proposes actions for it; each distinct action is tried in a ``fork()`` of the
node's environment. The search expands the node with the highest total reward first; among equals, the one whose path the policy
finds most likely for its length (Levin tree search). A node may be expanded again as long as the policy proposes new actions
for it; a state that was seen before is no new node. The search ends with the first solution, or when ``forks`` copies have been
made for this task. Then the actions of the best path are played. If an observation differs from what the search saw, as in an
environment with chance, or if the path ends without a solution, the rest of the forks search again from there.

The policy sees the environment itself, so it is ``privileged``: its scores are not comparable with those of a model that plays.

Every proposed action was sampled after the exact tokens of its path. The tokens of the path that is played are recorded; those
of all other paths are in the usage of the turn that searched.
"""

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, NamedTuple

from palestra.core import AsyncEnv, Conversation, Policy, Step
from palestra.errors import UsageError
from palestra.policies.asides import Aside, Calls, together
from palestra.policies.strategy import Strategy
from palestra.trajectory import Completion, Content, Finish, observed, text_of

__all__ = ["FORKS", "TreeSearch"]

FORKS = 500
"""Most copies of the environment per task, unless the caller sets another number."""


class _Move(NamedTuple):
    """A played action, and what the search saw after it."""

    completion: Completion
    aside: Aside
    """The conversation up to and with the reply."""
    seen: str
    """The observation after the action."""


@dataclass
class _Node:
    """A state of the environment, and the moves that led to it."""

    env: AsyncEnv
    aside: Aside
    moves: tuple[_Move, ...] = ()
    total: float = 0.0
    chance: float = 0.0
    """Log-probability of the path: the share of the proposals that each of its actions had."""
    visits: int = 0
    tried: set[str] = field(default_factory=set)
    """The actions that have been tried here."""

    @property
    def rank(self) -> tuple[float, float]:
        """Lower is better: the highest total first, then the smallest length over probability, then the fewest visits."""
        return -self.total, math.log(len(self.moves) + 1) - self.chance + self.visits


@dataclass
class _Search:
    """The state of a search, for the length of an episode."""

    aside: Aside
    left: int
    """Forks that may still be made."""
    plan: list[_Move] = field(default_factory=list)
    """The moves to play next."""
    expected: str | None = None
    """The observation that the next turn shows if the environment does what the search saw."""
    seen: int = 0
    """Messages of the episode that have been read, with the reply that follows them."""
    asides: int = 0
    """Asides made so far: their numbers are their keys."""

    def branch(self, aside: Aside) -> Aside:
        """Return a copy of ``aside`` that samples with random numbers of its own."""
        self.asides += 1
        return aside.fork("branch", self.asides)


class TreeSearch(Strategy):
    """Search for the best path with copies of the environment, and play it.

    Args:
        policy: The policy that proposes actions. Its temperature must be above 0, or all proposals are the same.
        width: Replies that the policy proposes per visit of a state.
        forks: Most copies of the environment per task.
        states: What tells states apart: ``picture`` (what the environment's ``render`` draws, or the observation if it draws
            nothing) or ``observation``, for an environment whose picture does not show everything.
    """

    def __init__(
        self,
        policy: Policy | Callable[[str], Any] | str,
        width: int = 4,
        forks: int = FORKS,
        states: Literal["picture", "observation"] = "picture",
    ) -> None:
        if width < 1 or forks < 1:
            raise UsageError(f"width and forks must be at least 1, got {width} and {forks}")
        if states not in ("picture", "observation"):
            raise UsageError(f'states is "picture" or "observation", got "{states}"')
        shown = "" if states == "picture" else f"&states={states}"
        super().__init__(policy, f"tree?width={width}&forks={forks}{shown}")
        self.privileged = True
        self.width = width
        self.forks = forks
        self.states = states

    async def act(self, conversation: Conversation) -> Completion:
        state = conversation.memory.get("strategy")
        if state is None:
            state = conversation.memory["strategy"] = _Search(Aside(conversation, "strategy"), self.forks)
        search: _Search = state
        search.aside.messages += conversation.messages[search.seen :]
        search.seen = len(conversation.messages) + 1
        calls = Calls(self.policy)
        if search.expected is not None and search.expected != text_of(conversation.observation):
            search.plan = []
        if not search.plan and search.left > 0:
            search.plan = await _Growing(self, search, calls).best(conversation.env)
        if not search.plan:  # no forks are left, or no action could be tried
            search.expected = None
            return calls.end(await calls.ask(search.aside))
        move = search.plan.pop(0)
        search.aside, search.expected = move.aside, move.seen
        return calls.end(move.completion)


class _Growing:
    """One search from the present state."""

    def __init__(self, strategy: TreeSearch, search: _Search, calls: Calls) -> None:
        self.width = strategy.width
        self.pictures = strategy.states == "picture"
        self.search = search
        self.calls = calls
        self._order = count()
        self._open: list[tuple[tuple[float, float], int, _Node]] = []
        self._made: list[AsyncEnv] = []
        self._known: set[str] = set()
        self._best: _Node | None = None
        self._solved = False

    async def best(self, env: AsyncEnv) -> list[_Move]:
        """Return the moves of the best path that was found."""
        self._is_new(env, self.search.aside.messages[-1].content)
        self._push(_Node(env, self.search.aside))
        try:
            while self._open and self.search.left > 0 and not self._solved:
                node = heapq.heappop(self._open)[2]
                if await self._expand(node):
                    self._push(node)
        finally:
            for made in self._made:
                with suppress(Exception):
                    await made.close()
        return [] if self._best is None else list(self._best.moves)

    def _push(self, node: _Node) -> None:
        heapq.heappush(self._open, (node.rank, next(self._order), node))

    async def _expand(self, node: _Node) -> bool:
        """Try every new action that the policy proposes in ``node``. Returns whether there was one."""
        branches = [self.search.branch(node.aside) for _ in range(self.width)]
        replies = await together([self.calls.ask(branch) for branch in branches])
        node.visits += 1
        sound = [pair for pair in zip(replies, branches, strict=True) if pair[0].finish is Finish.STOP]
        shares = Counter(reply.text for reply, _ in sound)
        tried = False
        for reply, branch in sound:
            if reply.text in node.tried or self.search.left <= 0 or self._solved:
                continue
            tried = True
            node.tried.add(reply.text)
            await self._try(node, reply, branch, math.log(shares[reply.text] / self.width))
        return tried

    async def _try(self, node: _Node, reply: Completion, branch: Aside, chance: float) -> None:
        """Take the action of ``reply`` in a copy of the environment of ``node``."""
        self.search.left -= 1
        twin = await node.env.fork()
        self._made.append(twin)
        step = Step(*await twin.step(reply.text))
        moves = (*node.moves, _Move(reply, branch, text_of(step.observation)))
        child = _Node(twin, self.search.branch(branch), moves, node.total + step.reward, node.chance + chance)
        solved = (step.terminated or step.truncated) and step.info.get("success") is True
        if solved or self._best is None or child.total > self._best.total:
            self._best = child
        self._solved = self._solved or solved
        if not (step.terminated or step.truncated) and self._is_new(twin, step.observation):
            child.aside.messages.append(observed(step.observation, step.info))
            self._push(child)

    def _is_new(self, env: AsyncEnv, observation: Content) -> bool:
        """Return whether this state has not been seen, and remember it."""
        state = (_picture(env) if self.pictures else "") or text_of(observation)
        new = state not in self._known
        self._known.add(state)
        return new


def _picture(env: AsyncEnv) -> str:
    """Return the text of the picture that the environment draws of its state; empty if it draws none."""
    render = getattr(env.unwrapped, "render", None)
    drawn: Any = ""
    with suppress(Exception):
        drawn = render() if callable(render) else ""
    return re.sub(r"<[^>]*>", "", drawn).strip() if isinstance(drawn, str) else ""
