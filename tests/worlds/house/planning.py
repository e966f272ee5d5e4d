"""Our houses as planning problems, as ALFWorld writes them into its files."""

from palestra.worlds.house.world import House

_TOOLS = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}
_TRAITS = {"take": "pickupable", "switch": "toggleable", "clean": "cleanable", "heat": "heatable", "cool": "coolable"}


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


def problem(house: House) -> str:
    """The start of an episode as a planning problem."""
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
    return f"(define (problem house) (:domain alfred)\n(:objects {' '.join(objects)})\n(:init {' '.join(facts)}))"
