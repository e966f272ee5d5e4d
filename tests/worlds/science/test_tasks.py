"""The table of tasks and the lists of games. None of this needs Java."""

from typing import cast

import pytest

from palestra.registry import list_envs, spec
from palestra.worlds.science.gold import follow, read_gold, shipped_paths
from palestra.worlds.science.panels import panel_games
from palestra.worlds.science.simulator import NOT_UNDERSTOOD, Reaction, Simulator
from palestra.worlds.science.tasks import AGENTGYM, SPLITS, TASKS, Game, games_of


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

    def take(self, action: str) -> Reaction:
        self.taken.append(action)
        if action == "dance":
            return Reaction(NOT_UNDERSTOOD, 10, False)
        if action != "focus on fruit":
            return Reaction("", 10, False)
        ripe = self.taken.count("wait1") >= self.ripe_after
        return Reaction("You focus on the fruit.", 100, True) if ripe else Reaction(NOT_UNDERSTOOD, 10, False)


@pytest.mark.parametrize(
    ("ripe_after", "followed"),
    [
        (0, (["dance", "water plant", "focus on fruit"], 100)),
        (2, (["dance", "water plant", "wait1", "wait1", "focus on fruit"], 100)),
        (1000, (["dance", "water plant", *["wait1"] * 30, "focus on fruit", "look around"], 10)),
    ],
)
def test_a_path_waits_for_a_thing_that_it_focuses_on(ripe_after: int, followed: tuple[list[str], int]) -> None:
    garden = cast("Simulator", SlowGarden(ripe_after))
    assert follow(garden, Game("grow-fruit", 0), "", ["dance", "water plant", "focus on fruit", "look around"]) == followed
