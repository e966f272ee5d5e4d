"""Episodes in the real simulator. All tests of a process share its Java process; without Java they are skipped by name."""

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

import palestra
from palestra.checking.hostile import GROWING, SHORT
from palestra.core import Step
from palestra.errors import MissingExtra, UsageError
from palestra.registry import make, spec
from palestra.trajectory import Task, text_of
from palestra.worlds.science.actions import NOT_AN_ACTION
from palestra.worlds.science.gold import shipped_paths
from palestra.worlds.science.jvm import Jvm
from palestra.worlds.science.pool import seat
from palestra.worlds.science.shared import SharedState
from palestra.worlds.science.simulator import Simulator
from palestra.worlds.science.tasks import Game
from palestra.worlds.science.world import ScienceWorld

QUICK = ("find-animal", "chemistry-mix-paint-secondary-color", "lifespan-shortest-lived", "use-thermometer")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # Java starts late on a busy machine


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    spec("science:boil").factory()


@pytest.fixture
def env() -> Iterator[Any]:
    with make("science:find-animal-test") as env:
        yield env


@pytest.mark.parametrize("name", QUICK)
def test_the_oracle_reaches_the_full_score(name: str) -> None:
    with make(f"science:{name}-test") as env:
        observation, info = env.reset(task=Task(f"science:{name}-test", 0, index=1))
        assert text_of(observation).startswith("Your task is to ")
        assert info["task"] == name
        total = 0.0
        steps: list[Step] = []
        while not steps or not (steps[-1].terminated or steps[-1].truncated):
            steps.append(env.step(env.oracle()))
            total += steps[-1].reward
        assert steps[-1].terminated
        assert total == pytest.approx(1.0)
        assert steps[-1].info == {"score": 100, "success": True, "fatal": False}


def test_a_wrong_focus_ends_the_episode_without_points(env: Any) -> None:
    env.reset(task=Task("science:find-animal-test", 0, index=0))
    path = shipped_paths()[Game("find-animal", 225)]
    before = path[: next(place for place, action in enumerate(path) if action.startswith("focus"))]
    assert sum(env.step(action).reward for action in before) > 0
    step = env.step("Action: focus on agent")
    assert step.terminated
    assert step.info == {"score": 0, "success": False, "fatal": True}
    assert step.reward < 0


def test_text_without_an_action_does_not_reach_the_simulator(env: Any) -> None:
    env.reset(seed=0)
    step = env.step("** \n```\n")
    assert step[:4] == (NOT_AN_ACTION, 0.0, False, False)
    assert step.info["format_error"]


def test_an_unknown_simplification_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match='no simplification "warp"; there are easy'):
        ScienceWorld("boil", simplifications="warp")
    with pytest.raises(UsageError, match="leave noElectricalAction out"):
        ScienceWorld("power-component", simplifications="noElectricalAction")


def test_a_path_that_is_not_shipped_is_computed_once_and_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path))
    game = next(Game("find-plant", place) for place in range(9) if Game("find-plant", place) not in shipped_paths())
    with make("science:find-plant") as env:
        env.reset(task=Task("science:find-plant", 0, index=game.variation))
        first = env.oracle()
    (kept,) = tmp_path.rglob("*.json")
    assert kept.name == f"find-plant-{game.variation}.json"
    kept.write_text('["look around"]')
    with make("science:find-plant") as env:
        env.reset(task=Task("science:find-plant", 0, index=game.variation))
        assert env.oracle() == "Action: look around" != first


def played(simulator: Simulator, game: Game, path: list[str]) -> str:
    seen = [*simulator.begin(game, ""), *(repr(simulator.take(action)) for action in path)]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()


def replayed(shared: SharedState, games: list[Game]) -> dict[Game, str]:
    simulator = Simulator(shared)
    found = {game: played(simulator, game, shipped_paths()[game]) for game in games}
    simulator.free()
    return found


async def test_two_java_processes_in_another_order_give_the_same_episodes() -> None:
    games = [Game("find-animal", 225), Game("chemistry-mix", 24), Game("use-thermometer", 405)]
    place, other = await seat(), Jvm()  # the process that all tests share, and one of its own
    try:
        assert await place.jvm.call(replayed, games) == await other.call(replayed, games[::-1])
    finally:
        place.leave()
        other.end()


# Bees fly at random and plants inherit at random, so these games show whether an episode draws the numbers of another.
GARDEN = Game("grow-fruit", 87)


async def test_episodes_that_take_turns_see_what_each_would_see_alone() -> None:
    path = shipped_paths()[GARDEN][:14]
    place = await seat()
    try:
        alone = await place.jvm.call(replayed_beside, path, False)
        beside_others = await place.jvm.call(replayed_beside, path, True)
    finally:
        place.leave()
    assert beside_others == alone


def replayed_beside(shared: SharedState, path: list[str], others: bool) -> list[str]:
    """What the path shows. Between its actions, other episodes play, one is made, and a random action is drawn."""
    simulator = Simulator(shared)
    neighbors = [(Game("grow-fruit", 3), ""), (Game("grow-plant", 5), "easy")] if others else []
    playing = [Simulator(shared) for _ in neighbors]
    seen = [*simulator.begin(GARDEN, "")]
    for neighbor, (game, simplifications) in zip(playing, neighbors, strict=True):
        neighbor.begin(game, simplifications)
    for action in path:
        seen.append(repr(simulator.take(action)))
        for neighbor in playing:
            neighbor.take("wait1")
        if others:
            simulator.random_action([0.2, 0.4, 0.6])
    for used in (simulator, *playing):
        used.free()
    return seen


@pytest.mark.parametrize("kind", ["random", "hostile"])
def test_hundreds_of_actions_raise_nothing(env: Any, kind: str) -> None:
    texts = [*SHORT.values(), *(grow(300) for grow in GROWING.values()), "Action: 0", "Action: task", "Action: look in (.)"]
    rng = random.Random(0)
    low, high = env.unwrapped.reward_range
    env.reset(seed=0)
    for _ in range(200 if kind == "hostile" else 40):
        step = env.step(env.sample_random_action() if kind == "random" else "Action: " * rng.randrange(2) + rng.choice(texts))
        assert low <= step.reward <= high
        assert not (step.terminated and step.truncated)
        if step.terminated or step.truncated:
            env.reset(seed=rng.randrange(100))


def test_missing_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingExtra, match='"science:boil" needs Java: apt install default-jre-headless'):
        palestra.make("science:boil")
