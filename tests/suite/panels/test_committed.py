"""The committed panels are what their rules and the environments give, and have the sizes of the paper."""

from collections import Counter

import pytest

from palestra.suite.panels import differences, load_panel
from palestra.suite.panels.catalog import PANELS

EVERY = {"babyai": 10, "babyai-agentgym": 10, "craft": 5, "desk": 10, "house": 10}
SLOW = {"agentgym-rl": 20, "search": 20, "science": 40, "science-agentgym": 40}
"""Panel → which of its tasks are begun: every tenth, and so on."""
SIZES = {
    **{f"TextCraft/Depth {depth}": count for depth, count in {1: 31, 2: 41, 3: 25, 4: 3}.items()},
    **{f"BabyAI/{name}": 5 for name in ("ActionObjDoor", "FindObj", "OneRoom", "SynthLoc")},
    "BabyAI/GoTo": 55,
    "BabyAI/Pickup": 15,
}
"""Column of AgentGym-RL → tasks, as the paper has them."""


@pytest.mark.parametrize(
    ("name", "every"), [*EVERY.items(), *(pytest.param(*panel, marks=pytest.mark.slow) for panel in SLOW.items())]
)
def test_a_panel_is_what_was_committed(
    name: str, every: int, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path_factory.getbasetemp() / "home"))  # indexes of searches
    assert differences(name, every=every) == []


def test_every_panel_is_compared() -> None:
    assert EVERY.keys() | SLOW.keys() == PANELS.keys()


def test_the_columns_have_the_sizes_of_the_paper() -> None:
    columns = Counter(load_panel("agentgym-rl").groups)
    assert {name: columns[name] for name in SIZES} == SIZES
    assert sum(count for name, count in columns.items() if name.startswith("SciWorld/")) == 200
    assert sum(count for name, count in columns.items() if name.startswith("Search/")) == 400
