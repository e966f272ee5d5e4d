"""Several ranks in one process: as threads that send through memory, or one rank of a group that sends nothing."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

T = TypeVar("T")


@contextmanager
def one_of(ranks: int, rank: int) -> Iterator[None]:
    """Make this process one rank of a group in which nothing is sent: enough to see which rows the rank holds."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


class _Group:
    """Ranks that hand each other their tensors."""

    def __init__(self, members: Sequence[int]) -> None:
        self.members = list(members)
        self.barrier = threading.Barrier(len(self.members))
        self.sent: dict[int, Any] = {}

    def gathered(self, rank: int, sent: Any) -> list[Any]:
        """What every member has sent in this round."""
        self.sent[rank] = sent
        self.barrier.wait(60)
        everything = [self.sent[member] for member in self.members]
        self.barrier.wait(60)
        return everything


def in_threads(ranks: int, work: Callable[[int], T], monkeypatch: pytest.MonkeyPatch) -> list[T]:
    """Run ``work`` for every rank in a thread. Networks stay whole, so each rank keeps the gradient of its own passes."""
    own = threading.local()
    world = _Group(range(ranks))
    groups = {tuple(world.members): world}

    def round_of(group: _Group | None, sent: Any) -> list[Any]:
        return (group or world).gathered(own.rank, sent)

    def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None) -> None:
        everything = torch.stack(round_of(group, tensor.clone()))
        tensor.copy_(everything.sum(0) if op == dist.ReduceOp.SUM else everything.amax(0))

    def all_to_all_single(received: Tensor, sent: Tensor, group: Any = None) -> None:
        place = (group or world).members.index(own.rank)
        received.copy_(torch.stack([part[place] for part in round_of(group, sent)]))

    fakes: dict[str, Callable[..., Any]] = {
        "is_initialized": lambda: True,
        "get_world_size": lambda: ranks,
        "get_rank": lambda: own.rank,
        "new_group": lambda members: groups.setdefault(tuple(members), _Group(members)),
        "barrier": lambda: round_of(None, None),
        "all_reduce": all_reduce,
        "all_to_all_single": all_to_all_single,
    }

    def run(rank: int) -> T:
        own.rank = rank
        try:
            return work(rank)
        except BaseException:
            for group in groups.values():
                group.barrier.abort()
            raise

    with monkeypatch.context() as changed, ThreadPoolExecutor(ranks) as threads:
        for name, fake in fakes.items():
            changed.setattr(dist, name, fake)
        changed.setattr("palestra.training.learner.learner.shard", lambda network: None)
        futures = [threads.submit(run, rank) for rank in range(ranks)]
        errors = [future.exception() for future in futures]
        causes = [error for error in errors if error is not None and not isinstance(error, threading.BrokenBarrierError)]
        if causes:
            raise causes[0]
        return [future.result() for future in futures]
