"""What a recipe leaves out: the defaults that docs/reference/config.md states, and coefficients that change during a run."""

from typing import Any

import msgspec
import pytest

from palestra.recipes.algorithms import AdvantageConfig, Anneal, EntropyTarget, LossConfig, Overlong, PartialGroups, Shaping
from palestra.training.algorithms.groups import GroupCounts
from palestra.training.algorithms.horizon import SuccessGated
from palestra.training.algorithms.validity import SampleLimits

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (AdvantageConfig(), ("rebn", 1.0, 0.95, 1e-6, 0.0, "k1", 1.0, True, True)),
        (PartialGroups(), ("at_least", 2, True, 0)),
        (GroupCounts(), (0, 0, 0, 0, 0, 0)),
        (SuccessGated((1, 2), 0.5), ((1, 2), 0.5, 10)),
        (LossConfig(), ("clip", 0.2, 0.2, None, "recomputed", "truncate", 2.0, 0.0, "token", "k3", 0.0, 0.0, 0.5, None)),
        (Overlong(0.2), (0.2, 1.0)),
        (SampleLimits(7, 9), (7, 9, 0, 0, 1e6, False, -100.0, 16, 2.0)),
        (Anneal(1.0), (1.0, 0.0, 100)),
        (EntropyTarget(0.5), (0.5, 0.0, 0.005, 0.1)),
    ],
    ids=lambda made: type(made).__name__,
)
def test_defaults(made: Any, fields: tuple[object, ...]) -> None:
    assert msgspec.structs.astuple(made)[: len(fields)] == fields
    if isinstance(made, LossConfig):
        assert (made.aggregation, made.constant) == ("token_mean", 1024)


def test_by_default_rewards_stay_as_they_are() -> None:
    assert Shaping() == ("as_invalid", None, 1)


def test_a_coefficient_goes_linearly_to_its_end_and_stays_there() -> None:
    schedule = Anneal(0.5, 0.1, 4)
    assert [schedule.at(step) for step in (0, 1, 4, 5)] == pytest.approx([0.5, 0.4, 0.1, 0.1])


def test_a_coefficient_follows_the_entropy_within_its_bounds() -> None:
    target = EntropyTarget(1.0, rate=0.02, largest=0.05)
    assert target.after(0.01, 0.9) == pytest.approx(0.03)
    assert target.after(0.04, 0.9) == 0.05
    assert target.after(0.03, 1.0) == pytest.approx(0.01)
    assert target.after(0.01, 1.1) == 0.0
