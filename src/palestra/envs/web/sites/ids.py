"""The ids of tasks on sites: ``web:wiki-easy``."""

from palestra.envs.web.needs import BROWSER
from palestra.registry import Need, register

__all__ = ["register_sites"]

_NEEDS = (*BROWSER, Need(label="time-machine", module="time_machine", extra="sites"))
_ENTRY = "palestra.envs.web.sites.env:Errands"
_TURNS = {"easy": 12, "medium": 20, "hard": 30}


def register_sites() -> None:
    """Register every site and level."""
    for level, turns in _TURNS.items():
        register(
            f"web:wiki-{level}",
            _ENTRY,
            kwargs={"town": "palestra.envs.web.sites.wiki.town:town", "level": level, "max_turns": turns},
            tags={"world", "web", "sites"},
            needs=_NEEDS,
            max_turns=turns,
            description="Questions to an invented encyclopedia, answered by reading it in a browser.",
        )
