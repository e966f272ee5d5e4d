r"""Words after a number: ``5 million``, ``2 thirds``, ``12 red apples``, ``5 unless wrong``.

Words of value are computed, things that are counted are a unit, and all other words are left alone: a text with words that
mean nothing here is not a number.
"""

import re

__all__ = ["MULTIPLES", "SHARES", "counted", "valued"]

MULTIPLES = {
    "ten": 10,
    "dozen": 12,
    "score": 20,
    "hundred": 100,
    "gross": 144,
    "thousand": 10**3,
    "lakh": 10**5,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
    "quadrillion": 10**15,
    "quintillion": 10**18,
}
SHARES = {
    "half": 2,
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "seventh": 7,
    "eighth": 8,
    "ninth": 9,
    "tenth": 10,
    "eleventh": 11,
    "twelfth": 12,
    "thirteenth": 13,
    "fourteenth": 14,
    "fifteenth": 15,
    "sixteenth": 16,
    "seventeenth": 17,
    "eighteenth": 18,
    "nineteenth": 19,
    "twentieth": 20,
    "thirtieth": 30,
    "fortieth": 40,
    "fiftieth": 50,
    "sixtieth": 60,
    "seventieth": 70,
    "eightieth": 80,
    "ninetieth": 90,
    "hundredth": 100,
    "thousandth": 10**3,
    "permille": 10**3,
    "permil": 10**3,
    "millionth": 10**6,
    "billionth": 10**9,
    "trillionth": 10**12,
}
_VALUES = {
    **{name: f"\\cdot {value}" for name, value in MULTIPLES.items()},
    **{name: f"\\cdot\\frac{{1}}{{{value}}}" for name, value in SHARES.items()},
    "basis point": "\\cdot\\frac{1}{10000}",
    "ten thousandth": "\\cdot\\frac{1}{10000}",
    "hundred thousandth": "\\cdot\\frac{1}{100000}",
    "squared": "^2",
    "cubed": "^3",
    "factorial": "!",
}
_VALUES |= {
    f"{name}s": value for name, value in _VALUES.items() if name not in ("squared", "cubed", "half", "gross", "factorial")
}
_VALUES["halves"] = _VALUES["half"]

_IRREGULAR = {
    "people": "person",
    "children": "child",
    "men": "man",
    "women": "woman",
    "feet": "foot",
    "teeth": "tooth",
    "mice": "mouse",
    "geese": "goose",
    "dice": "die",
    "oxen": "ox",
    "vertices": "vertex",
    "indices": "index",
    "matrices": "matrix",
    "axes": "axis",
    "bases": "base",
    "radii": "radius",
    "foci": "focus",
    "loci": "locus",
    "leaves": "leaf",
    "loaves": "loaf",
    "knives": "knife",
    "wolves": "wolf",
    "shelves": "shelf",
    "lives": "life",
    "cacti": "cactus",
    "fungi": "fungus",
    "bacteria": "bacterium",
    "data": "datum",
    "polyhedra": "polyhedron",
    "maxima": "maximum",
    "minima": "minimum",
    "buses": "bus",
}
_UNCHANGED = "fish sheep deer series species aircraft salmon trout moose bison offspring headcount"
_SINGULAR = """
angle ant apple area arrangement bag ball balloon banana bead bee bird block boat bone book bottle bowl box boy bread brick
brother bucket bug bus bushel cake candle candy car card carrot case cat cell chair chicken child choice chord circle class
coin color combination committee cookie corner cousin cow crate crayon cube cup cupcake customer day dice die digit divisor
dog doll dollar door dot dress duck edge egg element employee equation euro event face factor family farmer female fence
field fight figure fish flower fly focus foot friend frog fruit function game gift girl glass goal goat grape graph group
guest handshake hat head hole horse house index inch integer interval item jar kid king leaf leg lemon letter line list loaf
locker lollipop male man marble mark match matrix meal member meter mile minute month monkey mother mouse move muffin
multiple nail nickel number office orange outcome page painting pair panel parrot part partition passenger path peach pear
pen pencil penny pentagon permutation person pet petal photo piece pig pizza plant plate player point polygon position
possibility pound prime problem product puppy quadruple question rabbit rectangle region ring robot room rose root rope row
rupee sandwich seat second section sequence set shape share sheep shell ship shirt shoe side sister slice snake sock soldier
solution song spider square stair stamp star station step stick sticker stone store story strawberry street string student
subset table tank teacher team term test ticket tie tile toy train tree triangle tribe triple trip truck tulip turn turtle
value vase vertex vote voter wall watermelon way week wheel window wolf woman word worker year zero zebra
"""
_NOUNS = {*_UNCHANGED.split(), *_SINGULAR.split(), *_IRREGULAR.values()}
_NOT_NOUNS = {
    *[
        "always",
        "besides",
        "does",
        "doubles",
        "equals",
        "factorials",
        "has",
        "inverses",
        "is",
        "its",
        "less",
        "logs",
        "maybes",
        "minus",
        "moduli",
        "modulos",
        "modulus",
    ],
    *[
        "negatives",
        "opposites",
        "otherwise",
        "percents",
        "perhaps",
        "plus",
        "positives",
        "reciprocals",
        "sometimes",
        "this",
        "thus",
        "times",
        "unless",
        "versus",
        "was",
        "yes",
    ],
    *[
        "twos",
        "threes",
        "fours",
        "fives",
        "sixes",
        "sevens",
        "eights",
        "nines",
        "twenties",
        "couples",
        "trios",
        "quartets",
        "myriads",
        "googols",
        "squareds",
        "cubeds",
    ],
    *["sines", "cosines", "tangents", "logarithms"],
}
"""Words that end like a plural, and change the value of a number or connect it with something else."""
_DESCRIBING = frozenset(
    [
        "additional",
        "available",
        "bad",
        "big",
        "black",
        "blue",
        "blank",
        "brown",
        "closed",
        "common",
        "complex",
        "consecutive",
        "correct",
        "critical",
        "dark",
        "different",
        "digital",
        "distinct",
        "empty",
        "equal",
        "even",
        "exact",
        "favorable",
        "full",
        "good",
        "gray",
        "great",
        "green",
        "grey",
        "hard",
        "heavy",
        "identical",
        "independent",
        "inner",
        "integer",
        "integral",
        "interior",
        "internal",
        "large",
        "lattice",
        "left-handed",
        "light",
        "little",
        "local",
        "long",
        "male",
        "marked",
        "medium",
        "missing",
        "mixed",
        "new",
        "noncongruent",
        "nonnegative",
        "nonzero",
        "odd",
        "old",
        "open",
        "orange",
        "ordered",
        "outer",
        "pink",
        "plain",
        "poor",
        "positive",
        "possible",
        "prime",
        "purple",
        "random",
        "rational",
        "real",
        "red",
        "regular",
        "remaining",
        "rich",
        "right",
        "round",
        "short",
        "single",
        "small",
        "solid",
        "special",
        "square",
        "standard",
        "straight",
        "tall",
        "total",
        "triangular",
        "uniform",
        "unique",
        "unordered",
        "valid",
        "various",
        "white",
        "whole",
        "wide",
        "winning",
        "wooden",
        "yellow",
        "young",
    ]
)
_AFTER = frozenset(
    [
        "total",
        "altogether",
        "left",
        "remaining",
        "old",
        "tall",
        "long",
        "wide",
        "high",
        "deep",
        "each",
        "only",
        "away",
        "apart",
        "ago",
        "later",
        "overall",
    ]
)
"""Words that may follow what is counted."""
_PHRASES = re.compile(r" in (?:total|all|length|area|height|width)$")
_WORDS = re.compile(r"^(.*[\d)}]) ?(?<=[ \d)}])((?:[a-zA-Z]+(?:-[a-z]+)?)(?: [a-zA-Z]+)*)$")
_AND_SHARE = re.compile(r"^(\d{1,9}) and (?:a|one) (half|third|quarter|fourth)\b")


def valued(text: str) -> str:
    r"""Return ``text`` with the words of value after its number as a formula: ``5 dozen eggs`` is ``(5\cdot 12) eggs``."""
    text = _AND_SHARE.sub(lambda share: f"({share[1]}+\\frac{{1}}{{{SHARES[share[2]]}}})", text)
    match = _WORDS.match(text)
    if match is None or not match[1]:
        return text
    number, words = match[1], match[2].split()
    while words:
        for length in (2, 1):
            value = _VALUES.get(" ".join(words[:length]).lower())
            if value is not None and len(words) >= length:
                number, words = f"({number}{value})", words[length:]
                break
        else:
            break
    return " ".join([number, *words]) if number != match[1] else text


def counted(text: str) -> tuple[str, str]:
    """Split ``12 red apples`` into ``12`` and ``red apple``. What is counted is empty if the words do not name such a thing."""
    match = _WORDS.match(_PHRASES.sub("", text))
    if match is None:
        return (_PHRASES.sub("", text), "item") if _PHRASES.search(text) else (text, "")
    words = match[2].lower().split()
    if len(words) == 1 and len(words[0]) < 3:
        return text, ""
    if "of" in words[1:-1]:
        position = words.index("of")
        if len(words) > position + 3 or any(_changes(word) for word in words[position + 1 :]):
            return text, ""
        words = words[:position]
    while len(words) > 1 and words[-1] in _AFTER:
        words.pop()
    *adjectives, noun = words
    if not all(word in _DESCRIBING or word in _NOUNS for word in adjectives):
        return text, ""
    singular = noun if noun in _DESCRIBING or noun in _AFTER else _singular(noun)
    return (match[1], " ".join([*adjectives, singular])) if singular else (text, "")


def _changes(word: str) -> bool:
    return word in _VALUES or word in _NOT_NOUNS


def _singular(noun: str) -> str:
    """Return the singular of a noun; empty if ``noun`` is no noun of the tables and no regular plural."""
    if noun in _NOUNS:
        return noun
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if _changes(noun) or len(noun) < 4 or not noun.endswith("s") or noun.endswith(("ss", "us", "sis", "xis", "his")):
        return ""
    if noun.endswith("ies") and len(noun) > 4:
        return f"{noun[:-3]}y"
    if noun.endswith(("ches", "shes", "xes", "sses", "zes")):
        return noun[:-2]
    return noun[:-1]
