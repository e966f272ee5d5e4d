"""Several learner processes that act as one: rank 0 leads, and the others repeat what it does.

The trainer knows one ``Learner``. With more than one rank that is a ``Leader``, rank 0. The leader sends every call to the
other ranks, which ``follow`` and make the same call with the same arguments. So only the learner knows about the other ranks,
and a follower needs no trainer and no policy.

Orders go through a process group of their own, which waits for as long as episodes take. A rank that dies breaks the
connections of all others, and they fail; the process that started them starts them again from the last checkpoint.
"""

from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from palestra.durable.checkpoint import FileEntry
from palestra.recipes.algorithms import LossConfig
from palestra.recipes.learner import LearnerConfig
from palestra.training.algorithms.groups import Array
from palestra.training.learner.batch import Batch
from palestra.training.learner.learner import Learner, Measured
from palestra.training.learner.model import ActorCritic

__all__ = ["Leader", "follow", "join"]

_BETWEEN_ORDERS = timedelta(days=30)


def join(rank: int, ranks: int, meeting: str, device: str) -> None:
    """Join ``ranks`` processes that meet at ``meeting`` (``tcp://host:port`` of rank 0, or ``file://…``)."""
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=ranks)


class Leader(Learner):
    """Rank 0. It sends every call to the followers, except ``accumulate``, which is a part of ``update``."""

    def __init__(self, network: ActorCritic, config: LearnerConfig, **frozen: ActorCritic | None) -> None:
        super().__init__(network, config, **frozen)
        self._orders = _Orders()

    def measure(self, batch: Batch) -> Measured:
        self._orders.give("measure", batch)
        return super().measure(batch)

    def measure_reference(self, batch: Batch) -> Array:
        self._orders.give("measure_reference", batch)
        return super().measure_reference(batch)

    def measure_teacher(self, batch: Batch) -> Array:
        self._orders.give("measure_teacher", batch)
        return super().measure_teacher(batch)

    def update(self, batch: Batch, loss: LossConfig | None = None) -> dict[str, float]:
        self._orders.give("update", batch, loss)
        return super().update(batch, loss)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        self._orders.give("weights")
        return super().weights()

    def checkpoint_weights(self, dtype: str) -> Iterator[tuple[str, Tensor]]:
        self._orders.give("checkpoint_weights", dtype)
        return super().checkpoint_weights(dtype)

    def write_weights(self, folder: Path, dtype: str) -> None:
        self._orders.give("write_weights", folder, dtype)
        super().write_weights(folder, dtype)

    def write_adapters(self, folder: Path, dtype: str) -> None:
        self._orders.give("write_adapters", folder, dtype)
        super().write_adapters(folder, dtype)

    def release(self) -> None:
        self._orders.give("release")
        super().release()

    def save(self, folder: Path) -> dict[str, FileEntry]:
        self._orders.give("save", folder)
        return super().save(folder)

    def load(self, folder: Path) -> None:
        self._orders.give("load", folder)
        super().load(folder)

    def dismiss(self) -> None:
        """End the followers: their ``follow`` returns."""
        self._orders.give("dismiss")


def follow(learner: Learner) -> None:
    """Repeat the leader's calls until it dismisses the followers."""
    orders = _Orders()
    while (order := orders.take())[0] != "dismiss":
        done = getattr(learner, order[0])(*order[1:])
        if order[0] in ("weights", "checkpoint_weights"):
            deque(done, maxlen=0)  # every rank must take part in gathering them


class _Orders:
    """Broadcasts from rank 0 to the others: a method's name and its arguments."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo", timeout=_BETWEEN_ORDERS)

    def give(self, *order: Any) -> None:
        dist.broadcast_object_list([order], src=0, group=self._group)

    def take(self) -> tuple[Any, ...]:
        heard: list[Any] = [None]
        dist.broadcast_object_list(heard, src=0, group=self._group)
        order: tuple[Any, ...] = heard[0]
        return order
