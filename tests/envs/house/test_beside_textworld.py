"""The same games, played in TextWorld's engine for planning domains: the same commands work, with the same effects and wins.

TextWorld knows nothing of our code: it reads the problem and the rules as a planning domain. With the package alfworld, which
only a developer installs, the same games are played by ALFWorld's own domain and grammar, too.
"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tests.envs.house.planning import DOMAIN, GRAMMAR, facts_of, identifiers, problem

from palestra.envs.house.commands import possible_commands
from palestra.envs.house.env import Household
from palestra.envs.house.goals import TASKS
from palestra.seeding import derive

pytestmark = [pytest.mark.worlds, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

GAMES = [(TASKS[number % 6], "hard" if number % 5 == 4 else "easy", number) for number in range(20)]
TURNS = 24
FACTS = ("opened", "isclean", "ishot", "iscool", "istoggled", "holds", "inreceptacle")
"""What is compared. TextWorld never reports that a lamp is on: in the domain, only a conditional effect changes it."""
NOT_OURS = ("help", "slice")
"""Commands of ALFWorld that no task needs."""


def rules() -> list[Any]:
    found = [pytest.param((DOMAIN, GRAMMAR), id="ours")]
    theirs = importlib.util.find_spec("alfworld")
    if theirs is not None and theirs.origin is not None:
        data = Path(theirs.origin).parent / "data"
        found.append(pytest.param(((data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()), id="alfworld"))
    return found


class Beside:
    """A game in TextWorld, under our names."""

    def __init__(self, env: Household, domain: str, grammar: str) -> None:
        import textworld
        from textworld.envs.pddl import PddlEnv

        self.theirs = domain != DOMAIN
        self.game = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True, facts=True))
        self.game.load({"pddl_domain": domain, "grammar": grammar, "pddl_problem": problem(env.house, env.goal)})
        names = [*env.house.scene.place_named, *env.house.scene.thing_named]
        ours = dict(zip(identifiers(names), names, strict=True))
        for info in self.game._entity_infos.values():
            info.name = ours.get(info.id, info.id)
        self.state = self.game.reset()

    def step(self, command: str) -> None:
        self.state, _, _ = self.game.step(command)

    @property
    def commands(self) -> set[str]:
        return {line for line in self.state["admissible_commands"] if line.split()[0] not in NOT_OURS}

    def unknown(self, env: Household) -> set[str]:
        """Commands of ours that the rules lack: in ALFWorld's domain, only a thing in the hand can be examined."""
        if not self.theirs:
            return set()
        things = env.house.scene.things
        return {f"examine {thing.name}" for index, thing in enumerate(things) if index != env.house.held}

    @property
    def facts(self) -> set[str]:
        found = set()
        for fact in self.state["facts"]:
            if fact.name in FACTS:
                found.add(f"{fact.name} {', '.join(var.name for var in fact.arguments if var.type != 'agent')}")
        return found


def walks_to_here(env: Household) -> set[str]:
    """Commands that the planning domains allow and we refuse: to walk to where the agent is. They change nothing."""
    return {f"go to {env.house.scene.places[place].name}" for place in env.house.here()}


def wrong_command(env: Household, chance: Any) -> str:
    """A well-formed command that mostly does not work."""
    places = [place.name for place in env.house.scene.places]
    things = [thing.name for thing in env.house.scene.things]
    forms = ("open {p}", "close {p}", "take {t} from {p}", "move {t} to {p}", "clean {t} with {p}", "heat {t} with {p}",
             "cool {t} with {p}", "use {t}", "examine {t}", "examine {p}")  # fmt: skip
    place, thing = places[int(chance.random() * len(places))], things[int(chance.random() * len(things))]
    return forms[int(chance.random() * len(forms))].format(p=place, t=thing)


@pytest.mark.parametrize("rules", rules())
@pytest.mark.parametrize(("task", "size", "seed"), GAMES)
def test_the_same_game(task: str, size: str, seed: int, rules: tuple[str, str]) -> None:
    env = Household(task, size, 1000)
    env.reset(seed=seed)
    beside = Beside(env, *rules)
    chance = derive(seed, "beside")
    for turn in range(TURNS + 40):
        assert beside.commands - walks_to_here(env) == set(possible_commands(env.house)) - beside.unknown(env), turn
        assert beside.facts == facts_of(env.house), turn
        draw = chance.random() if turn < TURNS else 1.0
        listed = possible_commands(env.house)
        command = (
            listed[int(chance.random() * len(listed))]
            if draw < 0.5
            else wrong_command(env, chance)
            if draw < 0.75
            else env.oracle()
        )
        step = env.step(command)
        beside.step(command)
        assert step.terminated == bool(beside.state["won"]), (turn, command)
        if step.terminated:
            assert step.reward == 1.0
            assert beside.facts == facts_of(env.house)
            return
    raise AssertionError("the oracle did not solve the task")
