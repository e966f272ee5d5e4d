"""What ranks do together, by a group of one rank: it computes what all of them have."""

import hashlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.training.tiny import learner_of

from palestra.durable.checkpoint import FileEntry
from palestra.errors import SchemaError, Unsupported, UsageError
from palestra.training.algorithms.loss import LossConfig
from palestra.training.learner import ranks
from palestra.training.learner.batch import PackingConfig
from palestra.training.learner.checks import check_context, check_packing, check_sharing
from palestra.training.learner.context import ContextGroup, context_group
from palestra.training.learner.learner import Learner, LearnerConfig
from palestra.training.learner.model import ActorCritic, LoraSettings, ModelConfig
from palestra.training.learner.state import GENERATOR, StateReader, TensorRows, write_state

pytestmark = pytest.mark.torch


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


ORDERS: list[tuple[Any, ...]] = [
    ("measure", 1),
    ("measure_reference", 2),
    ("measure_teacher", 3),
    ("update", 4, 5),
    ("weights",),
    ("checkpoint_weights", "bfloat16"),
    ("write_weights", 6, "float32"),
    ("write_adapters", 7, "float32"),
    ("release",),
    ("save", 8),
    ("load", 9),
]


def test_those_who_follow_make_every_call_of_the_leader_and_take_part_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Any, ...]] = []
    made: list[tuple[Any, ...]] = []

    class Line:
        def give(self, *order: Any) -> None:
            sent.append(order)

        def take(self) -> tuple[Any, ...]:
            return sent.pop(0)

    def gathering(order: tuple[Any, ...]) -> Iterator[int]:
        yield 0
        made.append(order)

    def do(name: str, *arguments: Any) -> Any:
        if "weights" in name and "write" not in name:
            return gathering((name, *arguments))
        return made.append((name, *arguments))

    monkeypatch.setattr(ranks, "_Orders", Line)
    for name, *_ in ORDERS:
        monkeypatch.setattr(Learner, name, lambda _, *arguments, verb=name: do(verb, *arguments))
    leader = ranks.Leader.__new__(ranks.Leader)
    leader._orders = ranks._Orders()
    for name, *arguments in ORDERS:
        list(getattr(leader, name)(*arguments) or ())
    leader.dismiss()
    assert sent == [*ORDERS, ("dismiss",)]
    assert made == ORDERS
    made.clear()
    ranks.follow(Learner.__new__(Learner))
    assert made == ORDERS


@pytest.mark.parametrize("cuts", [(0, 5), (0, 2, 5), (0, 1, 1, 4, 5)])
@pytest.mark.parametrize("taken", [(0, 5), (1, 4), (3, 3)])
def test_rows_that_any_number_of_ranks_saved_are_joined(cuts: tuple[int, ...], taken: tuple[int, int], tmp_path: Path) -> None:
    whole, number = torch.arange(10, dtype=torch.float32).view(5, 2), torch.tensor(3.0)
    for rank, (start, stop) in enumerate(pairwise(cuts)):
        held = {
            "sharded": TensorRows(whole[start:stop], start, (5, 2), True),
            "single": TensorRows(number, 0, (), False),
            GENERATOR: TensorRows(torch.tensor([rank], dtype=torch.uint8), 0, (1,), False),
        }
        write_state(tmp_path, rank, len(cuts) - 1, 7, held)
    reader = StateReader(tmp_path)
    assert (reader.updates, reader.names()) == (7, {"sharded", "single", GENERATOR})
    for name, entry in reader.files.items():
        data = (tmp_path / name).read_bytes()
        assert entry == FileEntry(len(data), hashlib.sha256(data).hexdigest())
    start, stop = taken
    into, one = torch.zeros(stop - start, 2), torch.tensor(0.0)
    reader.fill("sharded", TensorRows(into, start, (5, 2), True))
    reader.fill("single", TensorRows(one, 0, (), False))
    assert torch.equal(into, whole[start:stop])
    assert one == number
    assert [reader.own(GENERATOR, rank) is None for rank in range(len(cuts))] == [False] * (len(cuts) - 1) + [True]
    with pytest.raises(SchemaError, match=r"sharded has shape \[5, 2\] in the checkpoint and \[6, 2\] here"):
        reader.fill("sharded", TensorRows(torch.zeros(6, 2), 0, (6, 2), True))
    with pytest.raises(SchemaError, match="unknown is incomplete"):
        reader.fill("unknown", TensorRows(torch.zeros(1, 2), 0, (1, 2), True))


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


def test_a_new_learner_has_made_no_update_and_measures_first() -> None:
    made = learner_of()
    assert (made.updates, made.measures_first, made.seen) == (0, True, None)


def test_without_a_number_of_ranks_nothing_is_divided(alone: ContextGroup) -> None:
    assert context_group(1) is None
    with pytest.raises(UsageError, match="groups of 2 ranks, but the learner has 1"):
        context_group(2)
