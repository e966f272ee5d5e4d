"""The defects of AgentGym's BabyAI: each is in a model of its rule and in ``-agentgym``, and not in the plain ids."""

import gymnasium
import pytest

from palestra.envs.babyai.agentgym import AgentGymBabyAI, without_order
from palestra.envs.babyai.env import BabyAI
from palestra.envs.babyai.levels import AGENTGYM
from palestra.envs.babyai.sets import BabyAISet, NumberedTasks, read_tasks
from palestra.envs.babyai.sight import AHEAD
from palestra.envs.babyai.world import World
from palestra.errors import UsageError
from palestra.trajectory import Task

TEST = NumberedTasks("test")


def index_of(level: str) -> int:
    """The first row of the panel with this level."""
    return next(index for index in range(len(TEST)) if TEST.level_and_seed(index)[0] == level)


def test_the_numbering_and_the_panel_of_90() -> None:
    model = [(number % 40 + 1, number // 40) for number in range(1804, 2004) if number % 40 + 1 in AGENTGYM]
    assert [TEST.level_and_seed(index) for index in range(90)] == [(AGENTGYM[level], seed) for level, seed in model]
    assert len(TEST) == 90
    assert len(read_tasks("train")) == 814
    assert len(AGENTGYM) == 18
    with pytest.raises(UsageError, match="train or test"):
        read_tasks("dev")


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_level_4_is_gone_from_minigrid_and_had_rooms_of_size_4() -> None:
    World("GoToLocal")
    with pytest.raises(gymnasium.error.Error):
        gymnasium.make("BabyAI-GoToObjS6-v0")
    sizes = []
    for env in (AgentGymBabyAI(), BabyAISet()):
        env.reset(task=Task("babyai:panel", 0, index=index_of("GoToObjS6")))
        sizes.append(env.world.grid_env.room_size)
    assert sizes == [4, 6]


def is_over(terminated: bool, reward: float) -> bool:
    """AgentGym's rule for the end of an episode."""
    return terminated and reward > 0.5


def test_a_slow_success_is_withdrawn() -> None:
    assert not is_over(True, 0.4)
    task = Task("babyai:panel", 0, index=index_of("GoToRedBall"))
    ends = []
    for env in (AgentGymBabyAI(max_turns=100), BabyAISet(max_turns=100)):
        env.reset(task=task)
        # Turning in place for 40 of 64 steps leaves less than half of the reward.
        for _ in range(40):
            env.step("turn left")
        step = env.step(env.oracle())
        while step.reward == 0 and not step.terminated:
            step = env.step(env.oracle())
        ends.append(step.terminated)
        assert 0 < step.reward <= 0.5
    assert ends == [False, True]


def total(env: BabyAISet, actions: list[str]) -> float:
    """The sum of the rewards up to the end of the episode."""
    found = 0.0
    for action in actions:
        step = env.step(action)
        found += step.reward
        if step.terminated or step.truncated:
            break
    return found


def test_after_a_slow_success_nonsense_pays_again_and_again() -> None:
    task = Task("babyai:panel", 0, index=index_of("GoToLocalS8N7"))
    late = ["turn left"] * 40 + ["go to red box 1"]
    theirs, plain = AgentGymBabyAI(max_turns=100), BabyAISet(max_turns=100)
    scores = []
    for env, nonsense in ((theirs, 0), (theirs, 1), (theirs, 9), (plain, 9)):
        env.reset(task=task)
        scores.append(total(env, late + ["nonsense"] * nonsense))
    once = scores[0]
    assert 0 < once <= 0.5
    assert scores == pytest.approx([once, 2 * once, 10 * once, scores[3]])
    assert 0 < scores[3] <= 0.5


def test_an_action_that_does_something_pays_what_it_earns() -> None:
    env = AgentGymBabyAI(max_turns=100)
    env.reset(task=Task("babyai:panel", 0, index=index_of("GoToLocalS8N7")))
    once = total(env, ["turn left"] * 40 + ["go to red box 1"])
    assert once > 0
    assert total(env, ["turn left", "nonsense"]) == 0.0


def test_minigrid_s_step_limit_does_not_end_the_episode_and_the_reward_turns_negative() -> None:
    task = Task("babyai:panel", 0, index=index_of("GoToLocalS8N7"))
    theirs, plain = AgentGymBabyAI(max_turns=100), BabyAISet(max_turns=100)
    theirs.reset(task=task)
    assert total(theirs, ["turn left"] * 80 + ["go to red box 1"]) < 0
    plain.reset(task=task)
    steps = [plain.step("turn left") for _ in range(64)]
    assert [step.truncated for step in steps] == [False] * 63 + [True]


@pytest.mark.parametrize(
    ("direction", "behind", "beside"), [(0, True, False), (1, True, True), (2, False, True), (3, False, False)]
)
def test_a_path_may_leave_the_view_in_some_directions(direction: int, behind: bool, beside: bool) -> None:
    env = AgentGymBabyAI()
    env.reset(task=Task("babyai:panel", 0, index=index_of("OneRoomS20")))
    sight = env.sight
    x, y, _ = sight.place
    sight.place, sight.cells = (x, y, direction), {}
    (ahead_x, ahead_y), (right_x, right_y) = AHEAD[direction], AHEAD[(direction + 1) % 4]
    assert sight.is_free((x - ahead_x, y - ahead_y)) is behind
    assert sight.is_free((x + ahead_x + 4 * right_x, y + ahead_y + 4 * right_y)) is beside
    assert not sight.is_free((x + ahead_x - 4 * right_x, y + ahead_y - 4 * right_y))


@pytest.mark.parametrize("word", [", then ", " after you "])
def test_the_order_of_a_mission_is_hidden(word: str) -> None:
    env = BabyAI("GoToSeqS5R2")
    missions = (str(env.reset(seed=seed)[1]["mission"]) for seed in range(100))
    first = next(mission for mission in missions if word in mission)
    assert word.strip(", ") not in without_order(first)
    assert " and " in without_order(first)


def test_the_plain_panel_keeps_the_order() -> None:
    ordered = 0
    for index in range(90):
        if TEST.level_and_seed(index)[0] != "GoToSeqS5R2":
            continue
        task = Task("babyai:panel", 0, index=index)
        plain, theirs = (str(env.reset(task=task)[0]) for env in (BabyAISet(), AgentGymBabyAI()))
        ordered += "then" in plain or "after you" in plain
        assert " then " not in theirs.partition("\n")[0]
        assert "after you" not in theirs.partition("\n")[0]
    assert ordered


def test_the_instruction_says_pick_up_and_the_parser_knows_pickup() -> None:
    task = Task("babyai:panel", 0, index=index_of("PickupLoc"))
    theirs, plain = AgentGymBabyAI(), BabyAISet()
    told = str(theirs.reset(task=task)[0])
    assert "pick up" in told.partition("Possible actions")[0]
    assert not any(action.startswith("pick up") for action in theirs.moves)
    assert any(action.startswith("pickup") for action in theirs.moves)
    plain.reset(task=task)
    name = next(action for action in plain.moves if action.startswith("pick up "))
    assert plain._primitives(name) == plain._primitives(name.replace("pick up", "pickup")) is not None
