"""The table of tasks and the lists of games. None of this needs Java."""

from typing import cast

import pytest

from palestra.envs.science.gold import follow, read_gold, shipped_paths, shortened
from palestra.envs.science.panels import agentgym, every_task, panel_games
from palestra.envs.science.simulator import NOT_UNDERSTOOD, Answer, Simulator
from palestra.envs.science.tasks import AGENTGYM, FLOORS, SPLITS, TASKS, Game, games_of
from palestra.errors import UsageError
from palestra.registry import list_envs, spec


def test_there_are_thirty_tasks_and_7207_games() -> None:
    assert len(TASKS) == 30
    assert sum(task.variations for task in TASKS.values()) == 7207


@pytest.mark.parametrize("name", TASKS)
def test_the_splits_are_disjoint_and_cover_all_variations(name: str) -> None:
    parts = [variation for split in SPLITS for variation in TASKS[name].split(split)]
    assert parts == list(range(TASKS[name].variations))


def test_agentgym_numbers_4639_games_over_23_tasks_in_order() -> None:
    games = games_of(AGENTGYM, "all")
    assert len(games) == 4639
    assert (games[0], games[29], games[30]) == (Game("boil", 0), Game("boil", 29), Game("melt", 0))
    assert games[4638] == Game("identify-life-stages-2", 9)
    left_out = {"grow-plant", "grow-fruit", *(name for name in TASKS if name.startswith(("inclined", "mendelian")))}
    assert {game.task for game in games} == set(TASKS) - left_out


def test_every_task_is_an_id_with_its_splits_as_levels() -> None:
    ids = {known.id for known in list_envs("science")}
    assert ids == {f"science:{name}{level}" for name in TASKS for level in ("", "-train", "-dev", "-test")} | {
        "science:agentgym"
    }
    rows = spec("science:boil-test").read_rows()
    assert rows is not None
    assert len(rows) == 9


def test_floors_are_of_tasks_that_exist() -> None:
    assert set(FLOORS) <= set(TASKS)
    assert all(0 < floor <= 0.5 for floor in FLOORS.values())


def test_an_unknown_task_or_split_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match='no task "boyl"; there are boil, melt'):
        games_of("boyl", "train")
    with pytest.raises(UsageError, match='no split "validation"; there are train, dev, test'):
        games_of("boil", "validation")


def test_the_panels_have_the_promised_games() -> None:
    assert len({task for task, _ in every_task()}) == 300
    assert len({task for task, _ in agentgym()}) == 200
    held_out = [task for task, _ in every_task() if not task.env.endswith("-train")]
    assert len(held_out) == 300 - 4 - 2  # identify-life-stages-2 has ten variations, identify-life-stages-1 has fourteen


def test_a_path_waits_instead_of_looking_many_times() -> None:
    looks = ["look at slope"] * 23
    assert shortened(["open door", *looks, "wait1", "wait1"]) == ["open door", *looks[:3], "wait", "wait", "wait1", "wait1"]
    assert shortened(looks[:10]) == looks[:10]
    assert all(shortened(path) == path for path in shipped_paths().values())


def test_the_shipped_gold_paths_are_of_games_that_exist_and_fit_into_the_turn_limit() -> None:
    paths = shipped_paths()
    assert [game for game in paths if game.variation not in TASKS[game.task].split("all")] == []
    assert [game for game, path in paths.items() if len(path) * 1.2 > TASKS[game.task].max_turns] == []
    assert {game.task for game in paths} == set(TASKS)
    assert read_gold().short == {}
    assert [game for game in panel_games() if game not in paths] == []


class SlowGarden:
    """A simulator in which the fruit appears after a few steps."""

    def __init__(self, ripe_after: int) -> None:
        self.ripe_after = ripe_after
        self.taken: list[str] = []

    def begin(self, game: Game, simplifications: str) -> tuple[str, str]:
        return "Grow a fruit.", "a garden"

    def take(self, action: str) -> Answer:
        self.taken.append(action)
        if action != "focus on fruit":
            return Answer("", 10, False)
        ripe = self.taken.count("wait1") >= self.ripe_after
        return Answer("You focus on the fruit.", 100, True) if ripe else Answer(NOT_UNDERSTOOD, 10, False)


@pytest.mark.parametrize(
    ("ripe_after", "followed"),
    [
        (0, (["water plant", "focus on fruit"], 100)),
        (2, (["water plant", "wait1", "wait1", "focus on fruit"], 100)),
        (1000, (["water plant", *["wait1"] * 30, "focus on fruit", "look around"], 10)),
    ],
)
def test_a_path_waits_for_a_thing_that_it_focuses_on(ripe_after: int, followed: tuple[list[str], int]) -> None:
    garden = cast("Simulator", SlowGarden(ripe_after))
    assert follow(garden, Game("grow-fruit", 0), "", ["water plant", "focus on fruit", "look around"]) == followed
