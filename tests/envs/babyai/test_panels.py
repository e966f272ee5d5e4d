"""The committed panels are what the rule and the environments give."""

from collections import Counter

import pytest

from palestra.envs.babyai.panels import panel_tasks
from palestra.envs.panels import differences


@pytest.mark.parametrize("name", ["babyai", "babyai-agentgym"])
def test_the_panel_is_what_was_committed(name: str) -> None:
    assert differences(name, every=10) == []


def test_the_columns_are_those_of_the_paper() -> None:
    columns = Counter(task.group.partition("/")[2] for task in panel_tasks())
    assert columns == {"GoTo": 55, "Pickup": 15, "ActionObjDoor": 5, "FindObj": 5, "OneRoom": 5, "SynthLoc": 5}
