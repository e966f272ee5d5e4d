import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra import AsyncEnv, Conversation, Env, Message, Step, Task, Wrapper, as_async, errors
from palestra.core import EpisodeTool, Info
from palestra.errors import EpisodeError, PalestraError, Unsupported
from palestra.trajectory import Content, ToolResult


class Dice(Env):
    """Shows what it draws."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return str(self.rng.integers(10**9)), {}

    def step(self, action: str) -> Step:
        return Step(f"{action} {self.rng.integers(10**9)}", 1.0, True, False, {})

    def sample_random_action(self) -> str:
        return str(self.action_rng.integers(10**9))


class AsyncDice(AsyncEnv):
    """The same, awaited."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return str(self.rng.integers(10**9)), {}

    async def step(self, action: str) -> Step:
        return Step(f"{action} {self.rng.integers(10**9)}", 1.0, True, False, {})

    async def sample_random_action(self) -> str:
        return str(self.action_rng.integers(10**9))


class Loud(Wrapper):
    """All three hooks."""

    def observation(self, observation: Content) -> Content:
        assert isinstance(observation, str)
        return observation + "!"

    def action(self, action: str) -> str:
        return action.upper()

    def reward(self, reward: float) -> float:
        return reward * 2


def test_the_task_names_the_start_state_and_random_actions_do_not_disturb_it() -> None:
    one, other = Dice(), Dice()
    task = Task("d", 3, params={"x": 1})
    assert one.reset(task=task) == other.reset(task=task)
    one.sample_random_action()
    assert one.step("a") == other.step("a")
    assert one.reset(seed=1) != one.reset(seed=2)
    assert one.reset() != one.reset()
    assert one.task.env == f"{__name__}:Dice"
    assert Dice().reset(task=Task("d", 3)) != Dice().reset(task=task)


def test_random_actions_follow_their_own_seed() -> None:
    one, other = Dice(), Dice()
    for env in (one, other):
        env.reset(seed=0)
    assert one.sample_random_action() == other.sample_random_action()
    one.seed_actions(1)
    other.seed_actions(2)
    assert one.sample_random_action() != other.sample_random_action()


async def test_both_colours_are_the_same_environment() -> None:
    plain, waiting = Dice(), AsyncDice()
    task = Task("d", 3)
    assert plain.reset(task=task) == await waiting.reset(task=task)
    assert plain.sample_random_action() == await waiting.sample_random_action()
    plain.seed_actions(5)
    await waiting.seed_actions(5)
    assert plain.sample_random_action() == await waiting.sample_random_action()
    assert plain.step("a") == await waiting.step("a")
    plain.close()
    await waiting.close()
    assert await waiting.healthy()
    assert plain.unwrapped is plain
    assert waiting.unwrapped is waiting
    assert plain.floor == 0.0


class Bare(Env):
    """Nothing optional."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        return super().reset(seed=seed, task=task)

    def step(self, action: str) -> Step:
        return Step("", 0.0, True, False, {})


class AsyncBare(AsyncEnv):
    """Nothing optional."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        return await super().reset(seed=seed, task=task)

    async def step(self, action: str) -> Step:
        return Step("", 0.0, True, False, {})


@pytest.mark.parametrize("verb", ["oracle", "sample_random_action", "fork"])
async def test_an_optional_verb_that_is_missing_says_so(verb: str) -> None:
    with pytest.raises(Unsupported, match=rf"Bare has no {verb}\(\)"):
        getattr(Bare(), verb)()
    with pytest.raises(Unsupported, match=rf"AsyncBare has no {verb}\(\)"):
        await getattr(AsyncBare(), verb)()
    assert Bare().reset(seed=0) == await AsyncBare().reset(seed=0) == ("", {})


async def test_a_wrapper_bends_what_passes_and_passes_on_the_rest() -> None:
    env, bare = Loud(as_async(Dice())), Dice()
    (shown, _), (seen, _) = await env.reset(seed=1), bare.reset(task=Task(f"{__name__}:Dice", 1))
    assert shown == f"{seen}!"
    assert await env.sample_random_action() == bare.sample_random_action()
    step, plain = await env.step("go"), bare.step("GO")
    assert step == Step(f"{plain.observation}!", 2.0, True, False, {})
    assert isinstance(env.unwrapped, Dice)
    assert env.task == bare.task
    await env.seed_actions(4)
    assert await env.healthy()
    with pytest.raises(Unsupported):
        await env.oracle()
    with pytest.raises(AttributeError):
        env.no_such_thing  # noqa: B018
    await env.close()


def test_players_of_one_task_have_seeds_of_their_own() -> None:
    env = as_async(Dice())
    seeds = {
        Conversation(Task("d", seed), env, player=player, seed_path=(run, group, member)).seed
        for seed in (0, 1)
        for player in ("", "x")
        for run in (0, 1)
        for group in (0, 1)
        for member in (0, 1)
    }
    assert len(seeds) == 32
    conversation = Conversation(Task("d"), env)
    conversation.messages += [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    assert (conversation.turn, conversation.observation) == (1, "c")


ERRORS = [name for name in errors.__all__ if isinstance(getattr(errors, name), type)]


@pytest.mark.parametrize("name", [name for name in ERRORS if issubclass(getattr(errors, name), PalestraError)])
def test_errors_survive_pickling(name: str) -> None:
    error = getattr(errors, name)("a message")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(back) is type(error)
    assert str(back) == "a message"
    assert name in (errors.__doc__ or ""), "the tree in the docstring is complete"
    assert not isinstance(error, EpisodeError) or name == "EpisodeError" or back.boundary


READS_OF_INFO = re.compile(r"""\binfo(?:\.get\(|\[)["'](\w+)["']|["'](\w+)["'] in (?:\w+\.)?info\b""")
OF_OTHERS = {
    "action": "agents: what the gateway answers to a program, not an info of an environment",
    "ended": "agents: the same",
    "step": "interchange: a training run writes the number of its step into the trajectories that it keeps",
}


def test_info_names_every_key_that_the_core_reads() -> None:
    package = Path(palestra.__file__).parent
    read: dict[str, str] = {}
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0]
        if room not in ("worlds", "bridges"):  # they read what their own environments, or other frameworks, wrote
            for match in READS_OF_INFO.finditer(path.read_text()):
                read[match[1] or match[2]] = str(path.relative_to(package))
    assert len(read) > 10
    assert not {key: path for key, path in read.items() if key not in Info.__annotations__ and key not in OF_OTHERS}
    assert set(OF_OTHERS) <= set(read)


def test_the_page_of_contracts_names_every_key_of_info() -> None:
    page = Path("docs/reference/contracts.md")
    text = (Path(__file__).parents[1] / page).read_text()
    section = text[text.index("## What `info` may contain") : text.index("## Turn limits")]
    assert not [key for key in Info.__annotations__ if f"`{key}`" not in section]


class Echo(EpisodeTool):
    """Has only what an EpisodeTool must have."""

    name = "echo"
    description = "Echo."
    parameters: Mapping[str, Any] = {"type": "object"}

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        return ToolResult("echo")


async def test_an_episode_tool_has_a_default_for_every_optional_member() -> None:
    tool = Echo()
    assert tool.for_episode({}) is tool
    assert (tuple(tool.secrets), tool.waiting_since) == ((), None)
    await tool.close()
    with pytest.raises(Unsupported, match="the tool 'echo' keeps state for it and has no fork"):
        await tool.fork()


def test_an_episode_tool_must_answer_calls() -> None:
    with pytest.raises(TypeError, match="abstract"):
        EpisodeTool()  # type: ignore[abstract]
