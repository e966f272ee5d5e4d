"""Episodes in the real simulator. All tests of a process share its Java process; without Java they are skipped by name."""

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

import palestra
from palestra.checking.hostile import GROWING, SHORT
from palestra.core import Step
from palestra.encoding import encode_json
from palestra.envs.science.actions import NOT_AN_ACTION
from palestra.envs.science.gold import shipped_paths
from palestra.envs.science.jvm import Jvm
from palestra.envs.science.pool import seat
from palestra.envs.science.shared import SharedState
from palestra.envs.science.simulator import Simulator
from palestra.envs.science.tasks import SPLITS, TASKS, Game
from palestra.envs.science.world import ScienceWorld
from palestra.errors import MissingExtra, UsageError
from palestra.registry import make, spec
from palestra.trajectory import Completion, StopReason, Task, Trajectory, Turn, text_of
from palestra.viewer.pictures import pictures_of, safe_nodes

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


def test_air_is_a_thing_that_does_not_live_and_the_floor_says_so() -> None:
    with make("science:find-non-living-thing-test") as env:
        env.reset(task=Task("science:find-non-living-thing-test", 0, index=3))
        assert env.step("Action: focus on air").reward == env.unwrapped.floor == 0.5
        assert not env.step("Action: focus on air").terminated


def test_agentgym_scores_a_fatal_mistake_as_minus_one() -> None:
    with make("science:agentgym") as env:
        _, info = env.reset(task=Task("science:agentgym", 0, index=30))
        assert info == {"task": "melt", "variation": 0}
        step = env.step("Action: focus on agent")
        assert step.terminated
        assert step.reward == -1.0


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


def test_a_simplification_adds_its_action() -> None:
    with make("science:boil", simplifications="teleportAction") as env:
        observation, _ = env.reset(seed=0)
        assert "teleport to PLACE" in observation
        assert env.step("Action: teleport to kitchen").observation == "You teleport to the kitchen."


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


def test_the_viewer_plays_an_episode_again_and_draws_it(env: Any) -> None:
    task = Task("science:find-animal-test", 0, index=0)
    observation, _ = env.reset(task=task)
    answer = env.step("Action: look around").observation
    turns = (Turn(observation, Completion("Action: look around")),)
    pictures = pictures_of(encode_json(Trajectory(task, StopReason.TRUNCATED, turns, final_observation=answer)))
    assert pictures is not None
    assert len(pictures) == 2
    assert pictures[1] == safe_nodes(env.unwrapped.render())


def test_the_oracle_goes_on_after_other_actions(env: Any) -> None:
    env.reset(task=Task("science:find-animal-test", 0, index=0))
    env.step(env.oracle())
    second = env.oracle()
    env.step("Action: inventory")
    assert env.oracle() == second


def test_a_fork_is_an_independent_copy(env: Any) -> None:
    env.reset(task=Task("science:find-animal-test", 0, index=2))
    for _ in range(3):
        env.step(env.oracle())
    twin = env.fork()
    assert [env.step(env.oracle()) for _ in range(2)] == [twin.step(twin.oracle()) for _ in range(2)]
    assert twin.step("Action: go to kitchen").observation != ""
    assert not env.step("Action: look around").terminated
    twin.close()


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


async def test_a_simulator_that_has_played_is_as_good_as_new() -> None:
    place = await seat()
    try:
        seen = await place.jvm.call(new_and_used, Game("find-animal", 225))
    finally:
        place.leave()
    assert "Ambiguous request" in seen[0]
    assert seen[1] == seen[2]


def new_and_used(shared: SharedState, game: Game) -> tuple[str, str, str]:
    """What a simulator that waits for a number answers, and what a new one and that one answer to a number in a new game."""
    used = Simulator(shared)
    used.begin(Game("boil", 0), "")
    ambiguous = [used.take(action).text for action in ("open door", "focus on door", "pick up door")]
    waiting = next((text for text in ambiguous if "Ambiguous" in text), "")
    fresh = Simulator(shared)
    answers = []
    for simulator in (fresh, used):
        began = simulator.begin(game, "")
        answers.append(repr((began, simulator.take("0"), simulator.random_action([0.2, 0.4, 0.6]))))
        simulator.free()
    return waiting, answers[0], answers[1]


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


async def test_a_simplification_holds_for_its_own_episode_only() -> None:
    place = await seat()
    try:
        watered, dry = await place.jvm.call(water_in_pots)
    finally:
        place.leave()
    assert "water" in watered
    assert "water" not in dry


def water_in_pots(shared: SharedState) -> tuple[str, str]:
    """The pots of an episode whose pots water themselves, and those of a plain one that plays after the first was loaded."""
    plain, easy = Simulator(shared), Simulator(shared)
    plain.begin(GARDEN, "")
    easy.begin(GARDEN, "selfWateringFlowerPots")
    for action in ("open door to outside", "go to outside", "open door to greenhouse", "go to greenhouse"):
        for simulator in (plain, easy):
            simulator.take(action)
    watered, dry = (simulator.take("look at flower pot 1").text for simulator in (easy, plain))
    plain.free()
    easy.free()
    return watered, dry


def test_the_oracle_waits_for_a_fruit_that_grows_later_than_its_path_expects() -> None:
    with make("science:grow-fruit-dev") as env:
        env.reset(task=Task("science:grow-fruit-dev", 0, index=GARDEN.variation - TASKS["grow-fruit"].split("dev").start))
        ends = False
        while not ends:
            step = env.step(env.oracle())
            ends = step.terminated or step.truncated
        assert step.info == {"score": 100, "success": True, "fatal": False}


async def test_the_table_of_splits_is_the_simulators() -> None:
    env = ScienceWorld("boil")
    try:
        await env.reset(seed=0)
        assert env._seat is not None
        for name in ("boil", "identify-life-stages-2", "inclined-plane-friction-named-surfaces"):
            assert await env._seat.call(Simulator.splits, name) == {split: list(TASKS[name].split(split)) for split in SPLITS}
    finally:
        await env.close()


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
