"""The ids of tasks on sites: ``web:wiki-easy``, ``web:shop-hard``."""

from palestra.registry import Need, register
from palestra.worlds.web.needs import BROWSER

_CLOCK = Need(label="time-machine", module="time_machine", extra="sites")
_OSCAR = Need(label="django-oscar", module="oscar", extra="sites")
_SPIRIT = Need(label="django-spirit", module="spirit", extra="sites")
_TRAC = Need(label="Trac", module="trac", extra="sites")
_ENTRY = "palestra.worlds.web.sites.env:Errands"
_TURNS = {"easy": 12, "medium": 20, "hard": 30}
_TURNS_INJECTED = {**_TURNS, "injected": 20}
_TOWNS = {
    "wiki": (_TURNS, (*BROWSER, _CLOCK), "Questions to an invented encyclopedia, answered by reading it in a browser."),
    "shop": (
        _TURNS_INJECTED,
        (*BROWSER, _CLOCK, _OSCAR),
        "Errands in a real shop: find, compare, buy, review, change an account.",
    ),
    "forum": (
        _TURNS_INJECTED,
        (*BROWSER, _CLOCK, _SPIRIT),
        "Errands in a real forum: find, write, edit, report, moderate.",
    ),
    "tracker": (
        _TURNS_INJECTED,
        (*BROWSER, _CLOCK, _TRAC),
        "Errands in a real issue tracker: find, compare, create, reassign, resolve.",
    ),
    "across": (
        {"easy": 20, "medium": 25, "hard": 40},
        (*BROWSER, _CLOCK, _OSCAR, _SPIRIT, _TRAC),
        "Errands across a shop, a forum and an issue tracker: what one site says is written on another one.",
    ),
}


for name, (levels, needs, about) in _TOWNS.items():
    for level, turns in levels.items():
        register(
            f"web:{name}-{level}",
            _ENTRY,
            kwargs={"town": f"palestra.worlds.web.sites.{name}.town:town", "level": level, "max_turns": turns},
            tags={"world", "web", "sites"},
            needs=needs,
            max_turns=turns,
            description=about,
        )
