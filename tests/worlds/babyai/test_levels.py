"""The ids, what one sees, and the oracle."""

import pytest

from palestra.errors import Unsupported, UsageError
from palestra.registry import list_envs
from palestra.trajectory import Image, text_of
from palestra.worlds.babyai.env import BabyAI
from palestra.worlds.babyai.levels import AGENTGYM, LEFT_OUT, LEVELS, minigrid_id
from palestra.worlds.babyai.sets import NumberedTasks, read_tasks
from palestra.worlds.babyai.sight import look
from palestra.worlds.babyai.world import FORWARD, LEFT, World


def played(env: BabyAI, seed: int) -> tuple[float, int]:
    """The score of the oracle and its number of turns."""
    env.reset(seed=seed)
    while True:
        step = env.step(env.oracle())
        if step.terminated or step.truncated:
            return step.reward, env.turn


def test_the_levels_are_those_of_minigrid() -> None:
    World("GoToLocal")
    import gymnasium

    known = {id for id in gymnasium.registry if id.startswith("BabyAI-")}
    assert {minigrid_id(level) for level in (*LEVELS, *LEFT_OUT)} == known
    assert len(LEVELS) == 90
    assert len(list_envs("babyai:*")) == 3 * 90 + 4


@pytest.mark.parametrize("level", ["GoToLocal", "PutNextLocalS5N3", "UnlockPickup", "MiniBossLevel", "PutNextS5N2Carrying"])
def test_the_oracle_solves_within_the_turn_limit(level: str) -> None:
    env = BabyAI(level)
    assert all(played(env, seed)[0] > 0 for seed in range(3))


def test_the_oracle_plays_primitive_actions_and_pictures() -> None:
    assert played(BabyAI("GoToLocal", actions="primitive"), 1)[0] > 0
    env = BabyAI("GoToLocal", view="picture")
    observation, _ = env.reset(seed=1)
    assert isinstance(observation, tuple)
    picture = observation[-1]
    assert isinstance(picture, Image)
    assert picture.data.startswith(b"\x89PNG")
    assert "red" not in text_of(observation).replace(env.mission, "")
    assert played(env, 1)[0] > 0


def test_a_task_that_no_agent_can_solve_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    is_solvable = BabyAI._is_solvable

    def noting(self: BabyAI, seed: int) -> bool:
        seen.append(is_solvable(self, seed))
        return seen[-1]

    monkeypatch.setattr(BabyAI, "_is_solvable", noting)
    assert played(BabyAI("PickupDistDebug"), 270)[0] > 0
    assert seen == [False, True]


def test_a_level_that_is_left_out_says_so() -> None:
    env = BabyAI("KeyInBox")
    env.reset(seed=0)
    with pytest.raises(Unsupported, match="KeyInBox"):
        env.oracle()
    with pytest.raises(UsageError, match="no BabyAI level"):
        BabyAI("GoToMoon")


def test_the_view_is_minigrids() -> None:
    world = World("BossLevel")
    for seed in range(5):
        world.reset(seed)
        for action in [FORWARD, LEFT, FORWARD, FORWARD, 5, FORWARD, 1, FORWARD, FORWARD, 5] * 3:
            env = world.grid_env
            view, visible = env.gen_obs_grid()
            expected = {}
            for column in range(7):
                for row in range(7):
                    cell = env.agent_pos + env.dir_vec * (6 - row) + env.right_vec * (column - 3)
                    x, y = map(int, cell)
                    if visible[column, row] and 0 <= x < env.width and 0 <= y < env.height:
                        expected[x, y] = view.get(column, row)
            expected[world.place[:2]] = env.grid.get(*env.agent_pos)
            seen = look(world)
            assert seen.keys() == expected.keys()
            assert all(seen[cell] is expected[cell] for cell in seen)
            world.act(action)


def test_the_numbering_and_the_panel_of_90() -> None:
    test = NumberedTasks("test")
    model = [(number % 40 + 1, number // 40) for number in range(1804, 2004) if number % 40 + 1 in AGENTGYM]
    assert [test.level_and_seed(index) for index in range(90)] == [(AGENTGYM[level], seed) for level, seed in model]
    assert (len(test), len(read_tasks("train")), len(AGENTGYM)) == (90, 814, 18)
    with pytest.raises(UsageError, match="train or test"):
        read_tasks("dev")


@pytest.mark.parametrize("seed", [33, 44])
def test_the_oracle_opens_a_box_in_its_way_if_it_must_pick_up_nothing_else(seed: int) -> None:
    env = BabyAI("PickupDistDebug")
    env.reset(seed=seed)
    actions, ended = [], False
    while not ended:
        actions.append(env.oracle())
        step = env.step(actions[-1])
        ended = step.terminated or step.truncated
    assert step.info["success"]
    assert actions.count("toggle") == 1
    assert sum(action.startswith("pick up") for action in actions) == 1
