"""The ids ``tools:bfcl-…``, one per category of the leaderboard's multi-turn tasks."""

from palestra.registry import register
from palestra.worlds.bfcl.wheels import BFCL

_ABOUT = {
    "base": "A user asks for one thing after another; do them by calling the functions of simulated APIs.",
    "miss_func": "As base, but a function is missing at first and comes with a later turn.",
    "miss_param": "As base, but the user leaves out a value at first and names it in a later turn.",
    "long_context": "As base, with long listings and files in the results.",
}


for category, about in _ABOUT.items():
    register(
        f"tools:bfcl-{category.replace('_', '-')}",
        "palestra.worlds.bfcl.dialogue:FunctionDialogue",
        kwargs={"category": category},
        tags={"tools", "multi-turn", "data"},
        needs=[BFCL.need()],
        description=about,
        rows="palestra.worlds.bfcl.package:read_tasks",
    )
