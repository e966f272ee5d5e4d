"""What ranks do together, by a group of one rank: it computes what all of them have."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist
from tests.training.tiny import learner_of

from palestra.errors import Unsupported, UsageError
from palestra.training.algorithms.loss import LossConfig
from palestra.training.learner.batch import PackingConfig
from palestra.training.learner.checks import check_context, check_packing, check_sharing
from palestra.training.learner.context import ContextGroup, context_group
from palestra.training.learner.learner import LearnerConfig
from palestra.training.learner.model import ActorCritic, LoraSettings, ModelConfig

pytestmark = pytest.mark.torch


@pytest.fixture
def alone() -> Iterator[ContextGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield ContextGroup(1, 0, dist.group.WORLD)
    finally:
        dist.destroy_process_group()


def test_the_numbers_of_all_ranks_are_gathered_and_each_gets_the_gradient_of_its_own(alone: ContextGroup) -> None:
    own = torch.tensor([5.0, 7.0], requires_grad=True)
    whole = alone.gathered(own, torch.tensor([2, 0]), 3)
    assert whole.tolist() == [7.0, 0.0, 5.0]
    (whole * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert own.grad is not None
    assert own.grad.tolist() == [100.0, 1.0]
    assert alone.largest(torch.tensor(3.5)) == 3.5


def test_what_is_exchanged_comes_back_with_its_gradient(alone: ContextGroup) -> None:
    query, key = torch.randn(2, 4, 3, 5, requires_grad=True), torch.randn(2, 2, 3, 5)
    exchanged, *_ = alone.with_whole_rows(query, key, key)
    torch.testing.assert_close(exchanged, query)
    (exchanged * 2).sum().backward()
    torch.testing.assert_close(query.grad, torch.full_like(query, 2.0))
    assert alone.own_heads(torch.arange(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("check", [check_packing, check_sharing, check_context])
def test_a_check_accepts_rounding_and_refuses_another_result(
    check: Callable[[ActorCritic], None], alone: ContextGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = learner_of().network
    network.context = alone
    check(network)
    for difference in (1.0, float("nan")):
        monkeypatch.setattr("palestra.training.learner.checks._difference", lambda *_, found=difference: found)
        with pytest.raises(Unsupported, match="hidden states differ by"):
            check(network)


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (PackingConfig(), (16_384, "padded")),
        (LoraSettings(), (16, 32.0, "all-linear")),
        (ModelConfig("m"), ("m", "cpu", None, False, "float32", False, "", "segments", 2048, False)),
        (LearnerConfig(), (1e-6, 0, None, "linear", (0.9, 0.95), 0.0, False, 1, 1.0, 1.0, PackingConfig(), LossConfig())),
    ],
    ids=lambda made: type(made).__name__,
)
def test_defaults(made: Any, fields: tuple[object, ...]) -> None:
    assert msgspec.structs.astuple(made) == fields


def test_without_a_number_of_ranks_nothing_is_divided(alone: ContextGroup) -> None:
    assert context_group(1) is None
    with pytest.raises(UsageError, match="groups of 2 ranks, but the learner has 1"):
        context_group(2)
