"""Tasks of a level differ in what they ask for, so a player who never reads the goal scores no more than the declared floor."""

import hashlib
from collections import Counter

import pytest

pytest.importorskip("pyseccomp")


from palestra.foundation.seeding import derive
from palestra.worlds.terminal.env import Terminal
from palestra.worlds.terminal.families import FAMILIES
from palestra.worlds.terminal.grading import to_data
from palestra.worlds.terminal.scene import LEVELS

MARGIN = 0.06
"""What chance may add to a share of 200 tasks: two standard deviations for the largest floor, .2."""


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_neither_a_script_nor_a_result_is_right_in_many_tasks(family: str) -> None:
    for place, level in enumerate(LEVELS):
        scenes = [FAMILIES[family](derive(seed, "variety"), place) for seed in range(200)]
        most = Terminal(family, level).floor + MARGIN
        for what in (
            Counter(tuple(one.solution) for one in scenes),
            Counter(repr(to_data(one.checks)) for one in scenes),
            Counter(one.goal for one in scenes),
        ):
            assert what.most_common(1)[0][1] / len(scenes) <= most, (level, what.most_common(1))


def test_the_family_of_the_training_study_stays_as_it_was() -> None:
    """``docs/results/terminal-training.md`` has figures of these tasks."""
    scenes = [FAMILIES["logs"](derive(seed, "task"), 0) for seed in range(5)]
    drawn = repr([(one.goal, one.files, to_data(one.checks), one.solution) for one in scenes])
    assert hashlib.sha256(drawn.encode()).hexdigest()[:16] == "032da732ecf24cf2"
