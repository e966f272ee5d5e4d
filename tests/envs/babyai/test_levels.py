"""The ids, what one sees, and the oracle."""

import io
from contextlib import redirect_stdout

import pytest

from palestra.envs.babyai.env import BabyAI
from palestra.envs.babyai.levels import LEFT_OUT, LEVELS, minigrid_id
from palestra.envs.babyai.oracle import Plan, furthest
from palestra.envs.babyai.sight import look
from palestra.envs.babyai.world import DONE, FORWARD, LEFT, PICK_UP, World
from palestra.errors import Unsupported, UsageError
from palestra.registry import list_envs, make, spec
from palestra.trajectory import Image, text_of


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


def test_the_oracle_helps_after_random_actions() -> None:
    env = BabyAI("PutNextLocal", max_turns=60)
    for seed in range(5):
        env.reset(seed=seed)
        for _ in range(6):
            step = env.step(env.sample_random_action())
            assert not step.terminated
            env.oracle()
        while not (step.terminated or step.truncated):
            step = env.step(env.oracle())
        assert step.info["success"]


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


def test_minigrid_prints_nothing_and_the_output_stays() -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        world = World("PutNextLocalS5N3")
        for seed in range(40):
            world.reset(seed)
        print("mine")
    assert printed.getvalue() == "mine\n"


def test_a_macro_that_leads_along_the_plan() -> None:
    plan = Plan([FORWARD, FORWARD, PICK_UP, LEFT], [(1, 1, 0), (2, 1, 0), (3, 1, 0), (3, 1, 0), (3, 1, 3)], [0, 0, 0, 1, 1])
    assert furthest(plan, 0, [FORWARD]) == 1
    assert furthest(plan, 0, [FORWARD, FORWARD, PICK_UP]) == 3
    assert furthest(plan, 0, [LEFT]) == -1
    assert furthest(plan, 0, [PICK_UP]) == -1
    assert furthest(plan, 3, [DONE]) == -1


def test_the_turn_limit_of_the_id() -> None:
    assert spec("babyai:GoToLocal").max_turns == 20
    with make("babyai:GoToLocal") as env:
        env.reset(seed=0)
        for _ in range(19):
            step = env.step("hello")
            assert not step.truncated
            assert "Possible actions" in text_of(step.observation)
        assert env.step("hello").truncated
