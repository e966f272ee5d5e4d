"""What there is in our houses: rooms, kinds of places, kinds of things, and what belongs where.

The tables are ours. They follow common sense, and on purpose some things have many possible places: the agent has to search.
"""

from typing import NamedTuple

__all__ = ["FITS", "LAMPS", "PLACES", "ROOMS", "THINGS", "PlaceKind", "ThingKind"]


class PlaceKind(NamedTuple):
    """A kind of place."""

    openable: bool = False
    hollow: bool = False
    treats: str = ""


PLACES = {
    **{
        name: PlaceKind()
        for name in (
            "countertop", "dining table", "side table", "coffee table", "shelf", "desk", "dresser", "nightstand", "bed", "sofa",
            "armchair", "ottoman", "tv stand", "bookcase", "stove burner", "coffee machine", "cart", "toilet", "towel rack",
            "paper holder", "windowsill",
        )
    },
    **{name: PlaceKind(hollow=True) for name in ("toaster", "garbage can", "bathtub", "laundry basket", "dish rack")},
    **{name: PlaceKind(True, True) for name in ("cabinet", "drawer", "safe", "wardrobe", "chest", "oven", "dishwasher")},
    "sink": PlaceKind(hollow=True, treats="clean"),
    "microwave": PlaceKind(True, True, "heat"),
    "fridge": PlaceKind(True, True, "cool"),
}  # fmt: skip
"""Every kind of place."""

ROOMS = {
    "kitchen": {
        "countertop": (1, 3), "cabinet": (2, 8), "drawer": (1, 6), "fridge": (1, 1), "microwave": (1, 1), "sink": (1, 1),
        "stove burner": (1, 4), "dining table": (1, 1), "garbage can": (1, 1), "side table": (0, 1), "shelf": (0, 3),
        "coffee machine": (0, 1), "toaster": (0, 1), "oven": (0, 1), "dishwasher": (0, 1), "dish rack": (0, 1),
        "windowsill": (0, 1),
    },
    "living room": {
        "sofa": (1, 1), "coffee table": (1, 1), "side table": (1, 2), "armchair": (1, 2), "tv stand": (1, 1), "shelf": (1, 4),
        "drawer": (1, 5), "cabinet": (0, 4), "bookcase": (0, 2), "ottoman": (0, 1), "dining table": (0, 1), "dresser": (0, 1),
        "safe": (0, 1), "chest": (0, 1), "garbage can": (1, 1), "windowsill": (0, 2),
    },
    "bedroom": {
        "bed": (1, 1), "desk": (1, 2), "nightstand": (1, 2), "dresser": (1, 1), "drawer": (2, 6), "shelf": (1, 4),
        "wardrobe": (0, 1), "chest": (0, 1), "safe": (0, 1), "side table": (0, 1), "armchair": (0, 1), "laundry basket": (0, 1),
        "garbage can": (1, 1), "windowsill": (0, 1), "cabinet": (0, 2),
    },
    "bathroom": {
        "sink": (1, 2), "bathtub": (1, 1), "toilet": (1, 1), "countertop": (1, 1), "cabinet": (1, 4), "drawer": (1, 4),
        "towel rack": (1, 2), "paper holder": (1, 1), "garbage can": (1, 1), "shelf": (0, 3), "cart": (0, 1),
        "laundry basket": (0, 1), "windowsill": (0, 1), "side table": (0, 1),
    },
}  # fmt: skip
"""A room → its kinds of places, with the fewest and the most of each."""


class ThingKind(NamedTuple):
    """A kind of thing."""

    rooms: frozenset[str]
    places: frozenset[str]
    traits: frozenset[str]


class _Group(NamedTuple):
    """Kinds of things that belong into the same places; commas separate the names."""

    rooms: str
    places: str
    traits: str
    names: str


_TOPS = "countertop, dining table, side table"
_LIVING_TOPS = "coffee table, side table, dining table, shelf, desk, dresser, nightstand, bookcase, windowsill, tv stand"

_GROUPS = (
    _Group("kitchen", f"{_TOPS}, fridge, sink, microwave, garbage can", "clean heat cool",
           "apple, pear, peach, tomato, potato, carrot, onion, zucchini"),
    _Group("kitchen", f"{_TOPS}, fridge, sink, garbage can", "clean cool",
           "lettuce, cucumber, lemon, grape bunch, radish"),
    _Group("kitchen", f"{_TOPS}, fridge, microwave, oven, toaster, garbage can", "heat cool",
           "bread loaf, bagel, muffin, croissant, pie, pizza slice"),
    _Group("kitchen", f"{_TOPS}, fridge, sink, microwave, garbage can", "heat cool clean", "egg"),
    _Group("kitchen", f"{_TOPS}, fridge", "cool", "milk carton, cheese wheel, butter dish, yogurt cup, jam jar"),
    _Group("kitchen", f"{_TOPS}, fridge, cabinet, shelf", "cool", "wine bottle, juice bottle, water bottle, soda can"),
    _Group("kitchen", f"{_TOPS}, cabinet, shelf, sink, fridge, microwave, dishwasher, dish rack", "clean heat cool",
           "plate, bowl, cup"),
    _Group("kitchen", f"{_TOPS}, cabinet, shelf, sink, fridge, microwave, dishwasher, dish rack, coffee machine",
           "clean heat cool", "mug"),
    _Group("kitchen", f"{_TOPS}, cabinet, shelf, sink, dishwasher, dish rack", "clean", "wine glass, saucer, teapot, jug"),
    _Group("kitchen", f"{_TOPS}, drawer, sink, dishwasher, dish rack", "clean",
           "fork, spoon, knife, butter knife, spatula, ladle, whisk, peeler, grater"),
    _Group("kitchen", f"{_TOPS}, cabinet, stove burner, sink, fridge, dish rack", "clean cool", "pot, pan"),
    _Group("kitchen", f"{_TOPS}, cabinet, stove burner, sink, shelf", "clean", "kettle, colander, wok"),
    _Group("kitchen", f"{_TOPS}, cabinet, drawer, shelf", "",
           "salt shaker, pepper shaker, sugar jar, honey jar, tea box, coffee tin, spice jar"),
    _Group("kitchen, bathroom", f"{_TOPS}, cabinet, drawer, sink, bathtub, cart, garbage can, shelf", "clean",
           "sponge, cloth"),
    _Group("kitchen, bathroom", f"{_TOPS}, cabinet, drawer, cart, garbage can, shelf, toilet, windowsill", "",
           "soap bottle, spray bottle, paper towel roll, scrub brush"),
    _Group("living room, bedroom", f"{_LIVING_TOPS}, drawer, sofa, armchair, ottoman, cabinet, bed", "",
           "book, magazine, newspaper, notebook"),
    _Group("living room, bedroom", f"{_LIVING_TOPS}, drawer, garbage can", "",
           "pen, pencil, ruler, hole punch, stapler, envelope, tape roll"),
    _Group("living room, bedroom", f"{_LIVING_TOPS}, drawer, sofa, armchair, ottoman, bed, safe", "",
           "cell phone, credit card, key chain, wallet, watch"),
    _Group("living room, bedroom", f"{_LIVING_TOPS}, drawer, sofa, armchair, bed", "",
           "laptop, remote control, headset, game controller, tablet, calculator"),
    _Group("living room, bedroom", f"{_LIVING_TOPS}, cabinet, chest, safe", "",
           "vase, statue, picture frame, candle, music box, globe"),
    _Group("living room, bedroom", f"{_LIVING_TOPS}, drawer, cabinet", "",
           "cd, alarm clock, tissue box, photo album, card deck, chess set"),
    _Group("living room, bedroom", "sofa, armchair, ottoman, bed, chest, wardrobe", "",
           "pillow, blanket, teddy bear, basketball, tennis racket"),
    _Group("bedroom, bathroom", "bed, armchair, wardrobe, chest, laundry basket, drawer, dresser, towel rack, bathtub", "",
           "shirt, sock, scarf, sweater, hat"),
    _Group("bathroom", "countertop, cabinet, drawer, sink, bathtub, cart, shelf, garbage can", "clean",
           "soap bar, toothbrush, comb, razor, bath duck"),
    _Group("bathroom", "countertop, cabinet, drawer, cart, shelf, windowsill, side table, garbage can", "",
           "toothpaste tube, shampoo bottle, lotion bottle, perfume bottle, hairbrush, cotton box, nail clipper"),
    _Group("bathroom", "towel rack, countertop, cabinet, bathtub, laundry basket, shelf", "", "towel, hand towel, bath mat"),
    _Group("bathroom", "paper holder, toilet, cabinet, shelf, cart, countertop, garbage can", "", "toilet paper roll"),
)  # fmt: skip

_LAMP_PLACES = "desk, side table, nightstand, dresser, shelf, coffee table, windowsill, tv stand"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split(", ")) if text else frozenset()


THINGS = {
    name: ThingKind(_words(group.rooms), _words(group.places), frozenset(group.traits.split()) | {"take"})
    for group in _GROUPS
    for name in group.names.split(", ")
}
"""Every kind of thing that the agent can carry."""

LAMPS = {
    name: ThingKind(frozenset({"living room", "bedroom"}), _words(_LAMP_PLACES), frozenset({"switch"}))
    for name in ("desk lamp", "table lamp", "reading lamp")
}
"""Things with a switch. They stay where they are."""

FITS = {place: frozenset(name for name, kind in THINGS.items() if place in kind.places) for place in PLACES}
"""A kind of place → the kinds of things that may be put there."""
