"""Games in ALFWorld's format: a folder of our own, written as ALFWorld writes them."""

import json
from pathlib import Path

import pytest
from tests.worlds.house.planning import problem

from palestra.errors import MissingData, MissingExtra, SchemaError, UsageError
from palestra.registry import make, spec
from palestra.trajectory import Task
from palestra.worlds.house.alfworld import AlfWorld, read_games
from palestra.worlds.house.commands import possible_commands
from palestra.worlds.house.env import Household
from palestra.worlds.house.goals import TASKS

TYPES = {
    "pick": "pick_and_place_simple",
    "look": "look_at_obj_in_light",
    "clean": "pick_clean_then_place_in_recep",
    "heat": "pick_heat_then_place_in_recep",
    "cool": "pick_cool_then_place_in_recep",
    "two": "pick_two_obj_and_place",
}
TARGETS = {"sink": "SinkBasin", "microwave": "Microwave", "fridge": "Fridge"}


def joined(kind: str) -> str:
    return "".join(word.capitalize() for word in kind.split())


def write_game(folder: Path, ours: Household, *, wish: str = "do the task", solvable: bool = True, task_type: str = "") -> None:
    folder.mkdir(parents=True)
    goal = ours.goal
    target = TARGETS.get(goal.target, joined(goal.target))
    game = {
        "grammar": f'grammar :: """{{"intro": [{{"rhs": "Your task is to: {wish}."}}]}}""";',
        "pddl_problem": problem(ours.house),
        "solvable": solvable,
        "walkthrough": [],
    }
    trajectory = {
        "task_type": task_type or TYPES[goal.task],
        "task_id": folder.name,
        "scene": {"scene_num": 305, "floor_plan": "FloorPlan305"},
        "pddl_params": {
            "object_target": joined(goal.kind),
            "parent_target": "" if goal.task == "look" else target,
            "toggle_target": target if goal.task == "look" else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
    }
    (folder / "game.tw-pddl").write_text(json.dumps(game))
    (folder / "traj_data.json").write_text(json.dumps(trajectory))


def drawn(task: str, seed: int = 0) -> Household:
    env = Household(task, "hard", 50)
    env.reset(seed=seed)
    return env


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with one game of each type in the split for training, and one in another split."""
    for number, task in enumerate(TASKS):
        write_game(tmp_path / "json_2.1.1" / "train" / f"{TYPES[task]}-{number}" / "trial_T1", drawn(task, number))
    write_game(tmp_path / "json_2.1.1" / "valid_seen" / "look" / "trial_T2", drawn("look"), wish="look at it")
    return tmp_path


@pytest.mark.parametrize("task", TASKS)
def test_a_game_from_a_file_is_the_game_that_was_written(task: str, data: Path) -> None:
    ours = drawn(task, TASKS.index(task))
    games = read_games(str(data), "train")
    index = next(number for number, name in enumerate(games.names) if name.startswith(f"{TYPES[task]}-"))
    with make("house:alfworld-train", path=str(data)) as env:
        observation, info = env.reset(task=Task("house:alfworld-train", 0, index=index))
        assert "Task: Do the task." in observation
        assert "You are in a bedroom." in observation
        assert info["task_type"] == task
        assert info["data"] == {"set": "ALFWorld", "split": "train", "index": index, "sha256": games.sha256}
        theirs = env.unwrapped
        assert isinstance(theirs, AlfWorld)
        while True:
            listed = {short(line, ours) for line in possible_commands(ours.house)}
            assert set(possible_commands(theirs.house)) == listed
            action = ours.oracle()
            step = ours.step(action)
            beside = env.step(short(action, ours))
            assert step[1:4] == beside[1:4]
            if step.terminated:
                break


def short(line: str, env: Household) -> str:
    """A command of ours under ALFWorld's names, which have no spaces."""
    kinds = {one.kind for one in env.house.scene.things} | {one.kind for one in env.house.scene.places}
    for kind in sorted(kinds, key=len, reverse=True):
        line = line.replace(f"{kind} ", f"{kind.replace(' ', '')} ")
    return line


def test_the_oracle_solves_every_game_and_the_order_is_by_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    rows = spec("house:alfworld").read_rows()
    assert rows is not None
    assert len(rows) == 6
    games = read_games()
    assert list(games.names) == sorted(games.names)
    with make("house:alfworld") as env:
        for index in range(6):
            env.reset(task=Task("house:alfworld", 0, index=index))
            step = env.step(env.oracle())
            while not (step.terminated or step.truncated):
                step = env.step(env.oracle())
            assert step.reward == 1.0
        with pytest.raises(UsageError, match="games 0 to 5, got index 6"):
            env.reset(task=Task("house:alfworld", 0, index=6))


def test_games_that_alfworld_leaves_out_are_left_out(tmp_path: Path) -> None:
    write_game(tmp_path / "a", drawn("pick"))
    write_game(tmp_path / "b", drawn("pick"), solvable=False)
    write_game(tmp_path / "c-movable", drawn("pick"))
    write_game(tmp_path / "AppleSliced", drawn("pick"))
    write_game(tmp_path / "d", drawn("pick"), task_type="pick_and_place_with_movable_recep")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "game.tw-pddl").write_text("{}")
    assert read_games(str(tmp_path)).names == ("a",)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("traj_data.json", "{", "is not a file of ALFWorld"),
        ("game.tw-pddl", '{"pddl_problem": 3}', "is not a file of ALFWorld"),
        ("game.tw-pddl", '{"pddl_problem": "(define)", "solvable": true}', "the planning problem cannot be read"),
        ("game.tw-pddl", '{"pddl_problem": "(:init (inReceptacle a", "solvable": true}', "the planning problem cannot be read"),
        (
            "game.tw-pddl",
            '{"pddl_problem": "(:init (atLocation a l))", "solvable": true}',
            "does not have what the task pick needs",
        ),
    ],
)
def test_broken_files_are_named(file: str, content: str, message: str, tmp_path: Path) -> None:
    write_game(tmp_path / "a", drawn("pick"))
    (tmp_path / "a" / file).write_text(content)
    with pytest.raises(SchemaError, match=message) as caught:
        AlfWorld(str(tmp_path)).reset(seed=0)
    assert str(tmp_path / "a") in str(caught.value)


def test_missing_data_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(MissingExtra, match=r"run alfworld-download and set ALFWORLD_DATA=FOLDER"):
        make("house:alfworld")
    with pytest.raises(MissingData, match="set ALFWORLD_DATA=FOLDER"):
        read_games()
    with pytest.raises(MissingData, match="has no ALFWorld game"):
        read_games(str(tmp_path))
    with pytest.raises(UsageError, match='no split "test": write train, seen, unseen'):
        read_games(str(tmp_path), "test")
