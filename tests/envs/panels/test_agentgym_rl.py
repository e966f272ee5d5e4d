"""The panel ``agentgym-rl``: the sizes of the paper, and the same tasks as were committed."""

from collections import Counter

import pytest

from palestra.envs.panels import differences, load_panel

SIZES = {
    **{f"TextCraft/Depth {depth}": count for depth, count in {1: 31, 2: 41, 3: 25, 4: 3}.items()},
    **{f"BabyAI/{name}": 5 for name in ("ActionObjDoor", "FindObj", "OneRoom", "SynthLoc")},
    "BabyAI/GoTo": 55,
    "BabyAI/Pickup": 15,
}
"""Column → tasks, as the paper has them."""


def test_the_columns_have_the_sizes_of_the_paper() -> None:
    found = Counter(load_panel("agentgym-rl").groups)
    assert {name: found[name] for name in SIZES} == SIZES
    assert sum(count for name, count in found.items() if name.startswith("SciWorld/")) == 200
    assert sum(count for name, count in found.items() if name.startswith("Search/")) == 400


@pytest.mark.slow
def test_the_panel_is_what_was_committed() -> None:
    assert differences("agentgym-rl", every=20) == []
