"""Strategies: what the model is asked, what the environment gets, and that every recorded token is one that was sampled."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palestra.core import AsyncEnv, Conversation, Policy, Renderer, Sampling, Step
from palestra.errors import UsageError
from palestra.evaluation import episode_of
from palestra.foundation.encoding import Ints
from palestra.inference.rendering import TemplateRenderer
from palestra.policies import is_privileged, next_completion, policy_name
from palestra.policies.choosing import BestOf, majority
from palestra.policies.history import Summary
from palestra.policies.remembering import Reflect, Scratchpad
from palestra.policies.sampled import SampledPolicy
from palestra.policies.searching import TreeSearch
from palestra.policies.strategy import named_strategy, split_reply
from palestra.policies.thinking import Plan, ReAct
from palestra.rollouts import collect, rollout
from palestra.testing.scripted import ScriptedEngine
from palestra.trajectory import Completion, Message, Task, Trajectory
from palestra.wrappers import Attempts
from tests.inference.rendering.zoo import tokenizer
from tests.policies.chat_server import ChatServer
from tests.policies.test_chat import chatting

SOKOBAN, SUDOKU = "game:Sokoban-v0-easy", "game:Sudoku-v0-easy"


class Talk(AsyncEnv):
    """Shows the texts it was given, one per turn, and takes any action. It never succeeds."""

    def __init__(self, shown: Sequence[str] = ("a", "b", "c")) -> None:
        self.shown = shown
        self.got: list[str] = []
        self.forks = [0]

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        self.got = []
        return f"task {self.shown[0]}", {}

    async def step(self, action: str) -> Step:
        self.got.append(action)
        over = len(self.got) == len(self.shown)
        info = {"success": False} if over else {}
        return Step("over" if over else self.shown[len(self.got)], 0.0, over, False, {**info, "got": action})

    async def fork(self) -> "Talk":
        self.forks[0] += 1
        twin = Talk(self.shown)
        twin.got, twin.forks, twin.task = list(self.got), self.forks, self.task
        return twin


def scripted(reply: Callable[[Conversation], str]) -> tuple[Policy, list[list[Message]]]:
    """A policy that answers with ``reply``, and the prompts that it got."""
    asked: list[list[Message]] = []

    class Model:
        name = "model"

        async def act(self, conversation: Conversation) -> Completion:
            asked.append(list(conversation.messages))
            return Completion(reply(conversation))

    return Model(), asked


def played(policy: Policy, env: Callable[[], AsyncEnv] = Talk) -> Trajectory:
    (trajectory,) = collect(env, policy, n=1, progress=False)
    assert not trajectory.failures, trajectory.failures
    return trajectory


def actions(trajectory: Trajectory) -> list[str]:
    return [turn.completion.text for turn in trajectory.turns]


# ------------------------------------------------------------------------------------------------------ what is asked and sent


@pytest.mark.parametrize("keep", [True, False])
def test_react_sends_the_action_alone_and_keeps_or_drops_the_thoughts(keep: bool) -> None:
    model, asked = scripted(lambda c: f"Thought: it is turn {c.turn}.\nAction: go {c.turn}")
    trajectory = played(ReAct(model, keep=keep))
    assert actions(trajectory) == ["go 0", "go 1", "go 2"]
    assert trajectory.turns[1].completion.reasoning == "Thought: it is turn 1."
    assert ReAct.request in str(asked[0][0].content)
    shown = [str(message.content) for message in asked[2]]
    assert any("Thought:" in text for text in shown[1:]) is keep
    assert shown[1].endswith("Action: go 0")
    assert policy_name(ReAct(model, keep=keep)) == ("model + react" if keep else "model + react?keep=false")


def test_a_reply_without_a_label_is_the_action() -> None:
    assert split_reply("look around") == ("", "look around")
    assert split_reply("Action: a\nAction: b") == ("Action: a", "b")


def test_a_plan_comes_first_and_stays_in_the_prompt() -> None:
    model, asked = scripted(lambda c: "first left, then right" if Plan.request in str(c.observation) else "left")
    assert actions(played(Plan(model))) == ["left"] * 3
    assert len(asked) == 4
    assert [message.content for message in asked[3]][1:3] == ["first left, then right", Plan.proceed]
    played(Plan(model, every=1))
    assert len(asked) == 4 + 6, "a plan before every turn"


def test_a_scratchpad_shows_the_task_the_notes_and_the_latest_observation_alone() -> None:
    model, asked = scripted(lambda c: "Notes: seen a\nAction: go" if "b" not in str(c.observation)[-1] else "stay")
    assert actions(played(Scratchpad(model))) == ["go", "stay", "go"]
    (first,), (second,), (third,) = asked
    assert "Your notes" not in str(first.content)
    assert str(second.content).endswith("Your notes:\nseen a\n\nThe latest observation:\nb")
    assert str(third.content).startswith("task a")
    assert "\nb" not in str(third.content), "what is not in the notes is forgotten"


def test_the_note_on_a_failed_attempt_enters_the_next_one() -> None:
    model, asked = scripted(lambda c: "do not go" if Reflect.request in str(c.observation) else "go")
    trajectory = played(Reflect(model), lambda: Attempts(Talk(("a", "b")), 3))
    assert actions(trajectory) == ["go"] * 6
    notes = [messages for messages in asked if Reflect.request in str(messages[-1].content)]
    assert len(notes) == 2
    assert str(notes[0][-1].content).startswith("over")
    (start,) = asked[-2]
    assert start.content == "task a\n\nYour note on attempt 1: do not go\n\nYour note on attempt 2: do not go"
    assert trajectory.turns[-1].info["metrics"] == {"attempts": 3}


def test_the_judge_chooses_and_the_others_are_not_sent() -> None:
    draws = iter(["x", r"\boxed{7}", r"It is \boxed{7}", "y"] * 3)
    model, _ = scripted(lambda c: next(draws))
    assert actions(played(BestOf(model, 4))) == [r"\boxed{7}"] * 3
    draws = iter(["x", "yy", "zzz"] * 3)
    assert actions(played(BestOf(model, 3, judge=f"{__name__}:longest"))) == ["zzz"] * 3
    with pytest.raises(UsageError, match="is unknown"):
        BestOf(model, 3, judge="nobody")


def longest(conversation: Conversation, replies: Sequence[Completion]) -> list[float]:
    return [len(reply.text) for reply in replies]


def test_the_model_can_judge_itself() -> None:
    draws = iter(["a", "b", "2"] * 3)
    model, asked = scripted(lambda c: next(draws))
    assert actions(played(BestOf(model, 2, judge="model"))) == ["b"] * 3
    assert "Reply 2:\nb" in str(asked[2][-1].content)


def test_an_own_strategy_is_named_with_keywords() -> None:
    around = named_strategy(f"{__name__}:Shout?mark=!")
    model, _ = scripted(lambda c: "go")
    assert actions(played(around(model))) == ["GO!"] * 3
    with pytest.raises(UsageError, match="Did you mean mark"):
        named_strategy(f"{__name__}:Shout?marc=!")
    with pytest.raises(UsageError, match='strategy = "reakt" is unknown'):
        named_strategy("reakt")


class Shout:
    def __init__(self, policy: Policy, mark: str = "") -> None:
        self.policy, self.mark = policy, mark

    async def act(self, conversation: Conversation) -> str:
        return (await next_completion(self.policy, conversation)).text.upper() + self.mark


async def test_a_strategy_plays_a_chat_api_and_its_calls_are_counted() -> None:
    server = ChatServer()
    async with chatting(server) as chat:
        (one,) = [one async for one in rollout(Talk, Plan(chat), n=1)]
    assert (len(one.turns), len(server.seen)) == (3, 4)
    assert episode_of(one).tokens == 4 * 7


# ---------------------------------------------------------------------------------------------------------------- attempts


def test_the_reward_of_several_attempts_is_that_of_the_last_one() -> None:
    trajectories = collect(partial(_sudoku, 2), "random", n=8, progress=False)
    assert all(-0.1 <= one.reward <= 1 for one in trajectories if one.reward is not None)
    solved = collect(partial(_sudoku, 3), "oracle", n=4, progress=False)
    assert [one.reward for one in solved] == pytest.approx([1.0] * 4)
    assert {one.turns[-1].info["metrics"]["attempts"] for one in solved} == {1}


def _sudoku(attempts: int) -> AsyncEnv:
    from palestra.registry import make_async

    return Attempts(make_async(SUDOKU), attempts)


# ------------------------------------------------------------------------------------------------------------- tree search


@pytest.mark.parametrize("env", [SUDOKU, SOKOBAN])
def test_tree_search_beats_its_own_policy_and_is_labelled_privileged(env: str) -> None:
    tree = TreeSearch("random", forks=300)
    assert is_privileged(tree)
    found = collect(env, tree, n=6, progress=False)
    plain = collect(env, "random", n=6, progress=False)
    assert all(one.privileged and not one.failures for one in found)
    assert sum(one.success is True for one in found) > sum(one.success is True for one in plain)


def test_tree_search_makes_no_more_forks_than_allowed_and_closes_each() -> None:
    made: list[Talk] = []

    class Counted(Talk):
        async def fork(self) -> "Talk":
            twin = Counted(self.shown)
            twin.got, twin.task = list(self.got), self.task
            made.append(twin)
            return twin

        async def close(self) -> None:
            self.closed = getattr(self, "closed", 0) + 1

    draws = iter(range(10_000))
    model, _ = scripted(lambda c: f"word {next(draws)}")
    trajectory = played(TreeSearch(model, width=3, forks=20), Counted)
    assert len(trajectory.turns) == 3
    assert len(made) == 20
    assert all(getattr(twin, "closed", 0) == 1 for twin in made)


def test_a_search_without_new_actions_ends() -> None:
    model, asked = scripted(lambda c: "same")
    assert actions(played(TreeSearch(model, width=2))) == ["same"] * 3
    assert len(asked) < 40


# ------------------------------------------------------------------------------------------------------------------ tokens

STRATEGIES: dict[str, Callable[[SampledPolicy], Policy]] = {
    "react": ReAct,
    "react dropped": partial(ReAct, keep=False),
    "plan": partial(Plan, every=2),
    "scratchpad": Scratchpad,
    "reflect": Reflect,
    "best of, majority": partial(BestOf, n=3),
    "best of, likelihood": partial(BestOf, n=3, judge="likelihood"),
    "best of, model": partial(BestOf, n=2, judge="model"),
    "tree": partial(TreeSearch, width=2, forks=12),
    "react in best of": lambda policy: BestOf(ReAct(policy), n=2),
    "scratchpad in reflect": lambda policy: Reflect(Scratchpad(policy)),
    "summary": lambda policy: policy,
}
DISCARDING = {"best of, majority", "best of, likelihood", "best of, model", "tree", "react in best of"}
"""These sample replies that never reach the environment; all others record every token."""
ONE_SEGMENT = {"react", "plan", "best of, majority", "best of, likelihood", "tree", "react in best of"}
"""With a template that only appends."""
PHRASES = ("Thought: hm\nAction: go", "Notes: remember\nAction: wait", "2", r"\boxed{7}", "")

texts = st.text(max_size=12) | st.sampled_from(["<|im_end|>", " \n", "é ü ß", "Action: x"])


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, list[int], bool]]]:
    """Observations, and replies: a phrase and ids that no tokenizer would write, ended by the stop token or not."""
    replies = st.tuples(st.integers(0, len(PHRASES) - 1), st.lists(st.integers(0, 10_000), max_size=4), st.booleans())
    return draw(st.lists(texts, min_size=1, max_size=4)), draw(st.lists(replies, min_size=1, max_size=8))


def _renderer(name: str) -> Renderer:
    return TemplateRenderer(tokenizer(name))


def recorded(strategy: str, using: Renderer, name: str, script: tuple[list[str], Any]) -> None:
    words, (shown, replies) = tokenizer(name), script
    calls: list[tuple[list[int], list[int]]] = []

    def write(prompt: Ints, sampling: Sampling) -> Sequence[int]:
        phrase, ids, ended = replies[len(calls) % len(replies)]
        own = [*words.encode(PHRASES[phrase], add_special_tokens=False), *(token % len(words) for token in ids)]
        own = [token for token in own if token not in using.stop_ids] or [11]
        written = [*own, using.stop_ids[0]] if ended or strategy in DISCARDING else own
        calls.append((prompt.tolist(), written))
        return written

    history = Summary(2) if strategy == "summary" else None
    policy = STRATEGIES[strategy](SampledPolicy(using, ScriptedEngine(write), Sampling(64), history=history))
    attempts = 2 if "reflect" in strategy else 1
    (trajectory,) = asyncio.run(_collected(policy, partial(_talk, shown, attempts)))
    assert not trajectory.failures, trajectory.failures
    left = list(calls)
    for segment in trajectory.segments:
        assert int(segment.mask.sum()) == len(segment.logprobs)
        start = 0
        for span in segment.spans:
            call = (segment.ids[: span.start].tolist(), segment.ids[span.start : span.stop].tolist())
            assert call in left, "the engine saw exactly this context and sampled exactly these ids, once"
            left.remove(call)
            expected = [-(index + 1) / 64 for index in range(len(call[1]))]
            assert segment.logprobs[start : start + len(call[1])].tolist() == expected
            start += len(call[1])
    if strategy not in DISCARDING:
        assert not left, "every sampled token is recorded"
    if strategy in ONE_SEGMENT and name in ("chatml", "bytes"):
        assert len(trajectory.segments) == 1
    assert episode_of(trajectory).tokens == sum(len(ids) for _, ids in calls), "what was discarded is counted"


def _talk(shown: Sequence[str], attempts: int) -> AsyncEnv:
    return Attempts(Talk(shown), attempts)


async def _collected(policy: Policy, env: Callable[[], AsyncEnv]) -> list[Trajectory]:
    return [one async for one in rollout(env, policy, n=1)]


@pytest.mark.torch
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["chatml", *(pytest.param(name, marks=pytest.mark.full) for name in ("qwen3", "metaspace"))])
def test_what_a_strategy_records_is_what_was_sampled(strategy: str, name: str) -> None:
    using = _renderer(name)

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(scripts())
    def hold(script: tuple[list[str], Any]) -> None:
        recorded(strategy, using, name, script)

    hold()


def test_equal_answers_are_counted_whatever_surrounds_them() -> None:
    replies = [Completion(text) for text in (r"\boxed{1 2}", r"so \boxed{1  2}", "other")]
    assert majority(Conversation(Task("x:y", 0)), replies) == [2.0, 2.0, 1.0]


@pytest.mark.torch
def test_a_recipe_names_strategies_as_the_command_line_does() -> None:
    from palestra.recipes.play import POLICY

    words = tokenizer("chatml")
    engine = ScriptedEngine(lambda prompt, sampling: [*words.encode("Thought: x\nAction: y"), words.eos_token_id])
    sampled = SampledPolicy(TemplateRenderer(words), engine)
    trajectory = played(POLICY.load({"use": "react", "keep": False})(sampled))
    assert actions(trajectory) == ["y"] * 3
    assert len(trajectory.segments) == 3
    assert POLICY.load("sampled")(sampled) is sampled
    assert isinstance(POLICY.load(f"{__name__}:Shout")(sampled), Shout)
