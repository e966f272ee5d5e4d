"""Our houses as planning problems in ALFWorld's vocabulary, and the rules as a planning domain in our own words.

The differential test plays these in TextWorld's engine for planning domains, and the test of the loader writes them to files.
The predicates have ALFWorld's names, so a problem can also be played with ALFWorld's own domain.
"""

from palestra.envs.house.goals import Goal
from palestra.envs.house.world import HAND, House

__all__ = ["DOMAIN", "GRAMMAR", "identifiers", "problem"]

_AT = "(atLocation ?a ?l) (receptacleAtLocation ?r ?l)"
_REACH = f"{_AT} (or (not (openable ?r)) (opened ?r))"


def _action(name: str, parameters: str, needs: str, does: str) -> str:
    return f"(:action {name} :parameters ({parameters}) :precondition (and {needs}) :effect (and {does}))"


def _treatment(name: str, trait: str, tool: str, does: str) -> str:
    needs = f"({trait} ?o) (receptacleType ?r {tool}Type) {_AT} (holds ?a ?o)"
    return _action(name, "?a - agent ?l - location ?r - receptacle ?o - object", needs, does)


_PLACE = "?a - agent ?l - location ?r - receptacle"
_THING = "?a - agent ?l - location ?o - object ?r - receptacle"

DOMAIN = "\n".join(
    [
        "(define (domain alfred) (:requirements :adl :typing)",
        "(:types agent location receptacle object rtype otype)",
        "(:predicates (atLocation ?a - agent ?l - location) (receptacleAtLocation ?r - receptacle ?l - location)",
        "(objectAtLocation ?o - object ?l - location) (openable ?r - receptacle) (opened ?r - receptacle)",
        "(inReceptacle ?o - object ?r - receptacle) (receptacleType ?r - receptacle ?t - rtype)",
        "(canContain ?rt - rtype ?ot - otype) (objectType ?o - object ?t - otype) (holds ?a - agent ?o - object)",
        "(holdsAny ?a - agent) (isClean ?o - object) (cleanable ?o - object) (isHot ?o - object) (heatable ?o - object)",
        "(isCool ?o - object) (coolable ?o - object) (pickupable ?o - object) (toggleable ?o - object) (isOn ?o - object)",
        "(isToggled ?o - object) (noticed ?a - agent) (noticedPlace ?r - receptacle) (noticedThing ?o - object))",
        _action("look", "?a - agent ?l - location", "(atLocation ?a ?l)", "(noticed ?a)"),
        "(:action inventory :parameters (?a - agent) :precondition () :effect (and (noticed ?a)))",
        _action("examinePlace", _PLACE, _AT, "(noticedPlace ?r)"),
        _action(
            "examineThing",
            "?a - agent ?o - object",
            f"(or (holds ?a ?o) (exists (?l - location ?r - receptacle) (and {_REACH} (inReceptacle ?o ?r))))",
            "(noticedThing ?o)",
        ),
        _action(
            "goTo",
            "?a - agent ?from - location ?l - location ?r - receptacle",
            "(atLocation ?a ?from) (receptacleAtLocation ?r ?l)",
            "(not (atLocation ?a ?from)) (atLocation ?a ?l)",
        ),
        _action("openPlace", _PLACE, f"{_AT} (openable ?r) (not (opened ?r))", "(opened ?r)"),
        _action("closePlace", _PLACE, f"{_AT} (openable ?r) (opened ?r)", "(not (opened ?r))"),
        _action(
            "takeThing",
            _THING,
            f"{_REACH} (pickupable ?o) (inReceptacle ?o ?r) (not (holdsAny ?a))",
            "(not (inReceptacle ?o ?r)) (not (objectAtLocation ?o ?l)) (holds ?a ?o) (holdsAny ?a)",
        ),
        _action(
            "moveThing",
            f"{_THING} ?ot - otype ?rt - rtype",
            f"{_REACH} (holds ?a ?o) (objectType ?o ?ot) (receptacleType ?r ?rt) (canContain ?rt ?ot)",
            "(inReceptacle ?o ?r) (objectAtLocation ?o ?l) (not (holds ?a ?o)) (not (holdsAny ?a))",
        ),
        _treatment("cleanThing", "cleanable", "SinkBasin", "(isClean ?o)"),
        _treatment("heatThing", "heatable", "Microwave", "(isHot ?o) (not (isCool ?o))"),
        _treatment("coolThing", "coolable", "Fridge", "(isCool ?o) (not (isHot ?o))"),
        _action(
            "useThing",
            _THING,
            f"{_AT} (toggleable ?o) (inReceptacle ?o ?r)",
            "(when (isOn ?o) (not (isOn ?o))) (when (not (isOn ?o)) (isOn ?o)) (isToggled ?o)",
        ),
        ")",
    ]
)

_COMMANDS = {
    "look": "look",
    "inventory": "inventory",
    "examinePlace": "examine {r}",
    "examineThing": "examine {o}",
    "goTo": "go to {r}",
    "openPlace": "open {r}",
    "closePlace": "close {r}",
    "takeThing": "take {o} from {r}",
    "moveThing": "move {o} to {r}",
    "cleanThing": "clean {o} with {r}",
    "heatThing": "heat {o} with {r}",
    "coolThing": "cool {o} with {r}",
    "useThing": "use {o}",
}

GRAMMAR = 'grammar :: """{"intro": [{"rhs": "Your task is to: WISH."}], "done": [{"rhs": "Done."}]}""";\n' + "\n".join(
    f'action {name} {{ template :: "{command}"; feedback :: "#done#"; }}' for name, command in _COMMANDS.items()
)
"""What to type for each action. ``WISH`` stands for the task in words."""

_TOOLS = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}
_TRAITS = {"take": "pickupable", "switch": "toggleable", "clean": "cleanable", "heat": "heatable", "cool": "coolable"}
_MARKS = {"isClean": "clean", "isHot": "hot", "isCool": "cool", "isToggled": "used"}


def identifiers(names: list[str]) -> list[str]:
    """ALFWorld's form of our names, as coordinates: numbers in the names follow from the order of these."""
    found = []
    for name in names:
        kind, _, number = name.rpartition(" ")
        # ALFWorld numbers from the last to the first.
        found.append(f"{kind.replace(' ', '')}_bar__plus_{99 - int(number):02d}_dot_50_bar__minus_00_dot_{int(number):02d}")
    return found


def _type(kind: str) -> str:
    return f"{''.join(word.capitalize() for word in kind.split())}Type"


def place_types(house: House) -> list[str]:
    """The type of each place: those that treat things have ALFWorld's names."""
    return [f"{_TOOLS[place.treats]}Type" if place.treats else _type(place.kind) for place in house.scene.places]


def problem(house: House, goal: Goal) -> str:
    """The start and the goal of an episode as a planning problem."""
    scene = house.scene
    places, things = identifiers([place.name for place in scene.places]), identifiers([thing.name for thing in scene.things])
    types, kinds = place_types(house), [_type(thing.kind) for thing in scene.things]
    spots = sorted({place.spot for place in scene.places})
    objects = [
        "agent1 - agent",
        f"{' '.join(f'loc_bar_{spot}' for spot in spots)} loc_bar_start - location",
        f"{' '.join(places)} - receptacle",
        f"{' '.join(things)} - object",
        f"{' '.join(sorted({*types, *(f'{tool}Type' for tool in _TOOLS.values())}))} - rtype",
        f"{' '.join(sorted(set(kinds)))} - otype",
    ]
    facts = ["(atLocation agent1 loc_bar_start)"]
    for index, place in enumerate(scene.places):
        facts += [f"(receptacleType {places[index]} {types[index]})"]
        facts += [f"(receptacleAtLocation {places[index]} loc_bar_{place.spot})"]
        facts += [f"(openable {places[index]})"] if place.openable else []
        facts += [f"(opened {places[index]})"] if index in house.opened else []
    fitting = {
        (types[place], kinds[thing])
        for place in range(len(places))
        for thing in range(len(things))
        if scene.may_hold(place, thing)
    }
    facts += [f"(canContain {place} {kind})" for place, kind in sorted(fitting)]
    for index, thing in enumerate(scene.things):
        facts += [f"(objectType {things[index]} {kinds[index]})"]
        facts += [f"({_TRAITS[trait]} {things[index]})" for trait in sorted(thing.traits)]
        facts += [f"(inReceptacle {things[index]} {places[house.where[index]]})"]
        facts += [f"(objectAtLocation {things[index]} loc_bar_{scene.places[house.where[index]].spot})"]
    lines = [f"(:objects {' '.join(objects)})", f"(:init {' '.join(facts)})", f"(:goal {condition(house, goal)})"]
    return "(define (problem house) (:domain alfred)\n" + "\n".join(lines) + ")"


def condition(house: House, goal: Goal) -> str:
    """When an episode is won."""
    kind = _type(goal.kind)
    if goal.task == "look":
        lamp = f"(objectType ?t {_type(goal.target)}) (toggleable ?t) (isToggled ?t) {_AT} (inReceptacle ?t ?r)"
        variables = "?t - object ?r - receptacle ?a - agent ?l - location"
        held = f"(exists (?o - object ?a - agent) (and (objectType ?o {kind}) (holds ?a ?o)))"
        return f"(and (exists ({variables}) (and {lamp})) {held})"
    target = next(name for name, place in zip(place_types(house), house.scene.places, strict=True) if place.kind == goal.target)
    there = f"(objectType ?o {kind}) (receptacleType ?r {target}) (inReceptacle ?o ?r)"
    mark = {"clean": "(cleanable ?o) (isClean ?o)", "heat": "(heatable ?o) (isHot ?o)", "cool": "(coolable ?o) (isCool ?o)"}
    more = mark.get(goal.task, "")
    if goal.task == "two":
        more = f"(exists (?p - object) (and (not (= ?o ?p)) (objectType ?p {kind}) (inReceptacle ?p ?r)))"
    return f"(and (exists (?r - receptacle) (exists (?o - object) (and {there} {more}))))"


def facts_of(house: House) -> set[str]:
    """Everything that can change, as facts in lower case over our names."""
    things, places = house.scene.things, house.scene.places
    found = {f"opened {places[index].name}" for index in house.opened}
    for predicate, mark in _MARKS.items():
        found |= {f"{predicate.lower()} {things[index].name}" for index in getattr(house, mark)}
    for index, place in enumerate(house.where):
        name = things[index].name
        found.add(f"holds {name}" if place == HAND else f"inreceptacle {name}, {places[place].name}")
    return found
