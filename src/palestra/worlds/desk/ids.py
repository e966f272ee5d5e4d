"""The ids of the service desks."""

from palestra.registry import register

_EASY = {"done": 1, "declined": 0, "numbered": True}
_HARD = {"done": 2, "declined": 2, "numbered": False}
_DOMAINS = {"shop": "Serve customers of an online shop by its rules.", "library": "Serve members of a library by its rules."}


for domain, description in _DOMAINS.items():
    for players, suffix, more in ((1, "", ""), (2, "-players", " The customer is a second player.")):
        register(
            f"tools:desk-{domain}{suffix}",
            "palestra.worlds.desk.desk:ServiceDesk",
            levels={"easy": {**_EASY, "max_turns": 20 * players}, "hard": {**_HARD, "max_turns": 60 * players}},
            default_level="hard",
            kwargs={"domain": domain, "players": players},
            tags={"tools", "dialogue"},
            description=f"{description}{more}",
        )
