"""The six tasks in words."""

from palestra.worlds.house.goals import Goal

__all__ = ["WORDINGS", "wish_of"]

_WISHES = {
    "pick": ("Put one {kind} {into} {a_target}.", "Find {a_kind} and leave it {inside} {a_target}."),
    "look": ("Look at {a_kind} in the light of {a_target}.", "Hold {a_kind} beside {a_target} that you have switched on."),
    "clean": ("Put a clean {kind} {into} {a_target}.", "Clean one {kind}, then leave it {inside} {a_target}."),
    "heat": ("Put a hot {kind} {into} {a_target}.", "Heat one {kind}, then leave it {inside} {a_target}."),
    "cool": ("Put a cold {kind} {into} {a_target}.", "Cool one {kind}, then leave it {inside} {a_target}."),
    "two": (
        "Find two things of the kind {kind} and put both {into} the same {target}.",
        "Bring together two things of the kind {kind} {inside} one {target}.",
    ),
}
"""A task type → ways to say it."""

WORDINGS = 2
"""Ways to say each task."""


def wish_of(goal: Goal, hollow: bool, which: int = 0) -> str:
    """Return ``goal`` in words; ``hollow`` says that things lie in the target, not on it."""
    into, inside = ("into", "in") if hollow else ("on", "on")
    kind, target = goal.kind, goal.target
    words = {"kind": kind, "target": target, "a_kind": _with_article(kind), "a_target": _with_article(target)}
    return _WISHES[goal.task][which].format(into=into, inside=inside, **words)


def _with_article(name: str) -> str:
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
