"""The rules of a household, each against a small room written by hand."""

from itertools import product

import pytest

from palestra.foundation.seeding import derive
from palestra.worlds.house.catalog import LAMPS, THINGS
from palestra.worlds.house.commands import perform, possible_commands, read_command
from palestra.worlds.house.env import SIZES
from palestra.worlds.house.goals import TASKS, Goal, is_solved
from palestra.worlds.house.scenes import draw_episode
from palestra.worlds.house.world import House, Place, Scene, Thing

TAKE = frozenset({"take"})


def small_kitchen() -> House:
    """A table with two cups and a lamp, a closed fridge with an egg, a sink, and a microwave."""
    places = [
        Place("table 1", "table", 0),
        Place("fridge 1", "fridge", 1, openable=True, hollow=True, treats="cool"),
        Place("sink 1", "sink", 2, hollow=True, treats="clean"),
        Place("microwave 1", "microwave", 3, openable=True, hollow=True, treats="heat"),
    ]
    things = [
        Thing("cup 1", "cup", TAKE | {"clean", "heat", "cool"}),
        Thing("cup 2", "cup", TAKE | {"clean", "heat", "cool"}),
        Thing("egg 1", "egg", TAKE | {"heat", "cool"}),
        Thing("lamp 1", "lamp", frozenset({"switch"})),
    ]
    fits = {"table": frozenset({"cup", "egg"}), "fridge": frozenset({"cup", "egg"}), "sink": frozenset({"cup"})}
    return House(Scene("kitchen", places, things, fits), [0, 0, 1, 0])


def play(house: House, *lines: str) -> list[bool]:
    """Whether each command worked."""
    worked = []
    for line in lines:
        command = read_command(line)
        assert command is not None
        worked.append(perform(house, command).worked)
    return worked


def say(house: House, line: str) -> str:
    command = read_command(line)
    assert command is not None
    return perform(house, command).text


def test_a_closed_place_hides_what_is_in_it() -> None:
    house = small_kitchen()
    assert say(house, "go to fridge 1") == "You walk to fridge 1. It is closed."
    assert say(house, "examine egg 1") == "You see no egg 1 here."
    assert say(house, "use egg 1") == "You see no egg 1 here."
    assert say(house, "take egg 1 from fridge 1") == "fridge 1 is closed."
    assert say(house, "open fridge 1") == "You open fridge 1. It is open. Inside: egg 1."
    assert say(house, "take egg 1 from fridge 1") == "You take egg 1 from fridge 1."


@pytest.mark.parametrize(
    "line", ["take {} from fridge 1", "examine {}", "use {}", "heat {} with microwave 1", "move {} to table 1"]
)
def test_no_answer_tells_that_a_thing_exists_elsewhere(line: str) -> None:
    for start in ([], ["go to fridge 1", "open fridge 1"], ["go to microwave 1"]):
        house = small_kitchen()
        play(house, *start)
        known, invented = ("cup 1", "cup 9") if start else ("egg 1", "egg 9")
        assert say(house, line.format(known)).replace(known, "X") == say(house, line.format(invented)).replace(invented, "X")


def test_the_hand_holds_one_thing() -> None:
    house = small_kitchen()
    assert play(house, "go to table 1", "take cup 1 from table 1", "take cup 2 from table 1") == [True, True, False]
    assert say(house, "inventory") == "You hold cup 1."
    assert "cup 1" not in say(house, "examine table 1")


def test_things_go_only_where_they_belong_and_lamps_stay() -> None:
    house = small_kitchen()
    assert play(house, "go to table 1", "take lamp 1 from table 1") == [True, False]
    play(house, "go to fridge 1", "open fridge 1", "take egg 1 from fridge 1", "go to sink 1")
    assert say(house, "move egg 1 to sink 1") == "egg 1 does not belong in or on sink 1."
    assert play(house, "move egg 1 to table 1", "go to table 1", "move egg 1 to table 1") == [False, True, True]


def test_heat_and_cold_replace_each_other_and_cleanness_stays() -> None:
    house = small_kitchen()
    play(house, "go to table 1", "take cup 1 from table 1", "go to sink 1", "clean cup 1 with sink 1")
    play(house, "go to microwave 1", "heat cup 1 with microwave 1")
    assert say(house, "examine cup 1") == "cup 1 is clean and hot."
    play(house, "go to fridge 1", "cool cup 1 with fridge 1")
    assert say(house, "examine cup 1") == "cup 1 is clean and cold."
    assert play(house, "heat cup 1 with fridge 1", "clean cup 1 with sink 1") == [False, False]


def test_a_lamp_counts_as_used_once_it_was_switched() -> None:
    house, goal = small_kitchen(), Goal("look", "cup", "lamp")
    assert play(house, "use lamp 1", "go to table 1", "take cup 1 from table 1") == [False, True, True]
    assert not is_solved(house, goal)
    assert say(house, "use lamp 1") == "You switch lamp 1 on."
    assert is_solved(house, goal)
    assert say(house, "use lamp 1") == "You switch lamp 1 off."
    assert is_solved(house, goal)  # as in ALFWorld, where the lamp must have been switched, in whichever direction
    play(house, "go to sink 1")
    assert not is_solved(house, goal)


def every_command(house: House) -> list[str]:
    """Every command that names things and places of the room, sensible or not."""
    places = [place.name for place in house.scene.places]
    things = [thing.name for thing in house.scene.things]
    one = [f"{verb} {name}" for verb in ("go to", "open", "close", "use", "examine") for name in (*places, *things)]
    words = (("take", "from"), ("move", "to"), ("clean", "with"), ("heat", "with"), ("cool", "with"))
    return ["look", "inventory", *one, *(f"{a} {thing} {b} {place}" for (a, b), thing, place in product(words, things, places))]


@pytest.mark.parametrize("task", TASKS)
def test_the_possible_commands_are_exactly_those_that_work(task: str) -> None:
    house, _ = draw_episode(derive(5, task), task, SIZES["easy"])
    chance = derive(6, task)
    for _ in range(12):
        working = [line for line in every_command(house) if play(house.copy(), line) == [True]]
        listed = possible_commands(house)
        assert len(listed) == len(set(listed))
        assert set(listed) == set(working)
        play(house, listed[int(chance.random() * len(listed))])


@pytest.mark.parametrize("task", TASKS)
def test_scenes_are_varied_and_not_solved_at_the_start(task: str) -> None:
    goals, rooms, doors = set(), set(), 0
    for seed in range(100):
        house, goal = draw_episode(derive(seed, task), task, SIZES["hard"])
        assert not is_solved(house, goal)
        goals.add(goal)
        rooms.add(house.scene.room)
        doors += len(house.opened)
        for thing, place in enumerate(house.where):
            kind = THINGS.get(house.scene.things[thing].kind) or LAMPS[house.scene.things[thing].kind]
            assert house.scene.places[place].kind in kind.places
    assert len(goals) > 60
    assert len(rooms) == {"pick": 4, "look": 2, "clean": 2, "heat": 1, "cool": 1, "two": 4}[task]
    assert doors > 0


def test_two_things_must_be_in_the_same_place() -> None:
    places = [Place(f"shelf {number}", "shelf", number) for number in (1, 2)]
    things = [Thing(f"cup {number}", "cup", TAKE) for number in (1, 2)]
    scene = Scene("kitchen", places, things, {"shelf": frozenset({"cup"})})
    assert not is_solved(House(scene, [0, 1]), Goal("two", "cup", "shelf"))
    assert is_solved(House(scene, [1, 1]), Goal("two", "cup", "shelf"))


@pytest.mark.parametrize("task", ["clean", "heat", "cool"])
def test_a_treated_thing_must_reach_the_target(task: str) -> None:
    house, goal = small_kitchen(), Goal(task, "cup", "table")
    tool = {"clean": "sink 1", "heat": "microwave 1", "cool": "fridge 1"}[task]
    assert not is_solved(house, goal)
    play(house, "go to table 1", "take cup 1 from table 1", f"go to {tool}", f"{task} cup 1 with {tool}", "go to table 1")
    assert not is_solved(house, goal)
    play(house, "move cup 1 to table 1")
    assert is_solved(house, goal)


def state_of(house: House) -> tuple[object, ...]:
    marks = (house.opened, house.clean, house.hot, house.cool, house.lit, house.used)
    return house.spot, house.held, tuple(house.where), *map(frozenset, marks)


def test_a_command_that_does_not_work_changes_nothing() -> None:
    house, _ = draw_episode(derive(7), "heat", SIZES["easy"])
    play(house, "go to fridge 1", "open fridge 1")
    before = state_of(house)
    for line in set(every_command(house)) - set(possible_commands(house)):
        assert play(house, line) == [False]
        assert state_of(house) == before
