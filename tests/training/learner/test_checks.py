"""What the checks before the first step take for rounding, and what for an error."""

import pytest
import torch

from palestra.training.learner.checks import _TOLERANCE, _difference

pytestmark = pytest.mark.torch


def test_rounding_in_one_large_dimension_is_no_error() -> None:
    """As in SmolLM2: one dimension is fifty times as large as the mean, and bfloat16 rounds it by an eighth of the mean."""
    states = torch.ones(1, 20, 576)
    states[..., 7] = 50.0
    rounded = states.clone()
    rounded[..., 7] += 0.125
    assert _difference(rounded, states) < _TOLERANCE["float32"]


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_one_wrong_position_of_many_is_an_error(compute: str) -> None:
    states = torch.randn(1, 200, 64, generator=torch.Generator().manual_seed(0))
    leaking = states.clone()
    leaking[0, 12] += 0.2 * states[0, 11]
    assert _difference(leaking, states) > _TOLERANCE[compute]


def test_values_that_are_not_numbers_are_an_error() -> None:
    states = torch.ones(1, 2, 4)
    assert not _difference(states * float("nan"), states) <= _TOLERANCE["bfloat16"]
