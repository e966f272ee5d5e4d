"""Weights that servers receive over a process group instead of reading files: what the learner and a server agree on.

The learner is rank 0 of a group, and the workers of ONE server are the others. Each server has a group of its own.
The learner sends buckets of tensors, and the server's HTTP interface says what is in them.
``palestra.inference.servers.broadcasting`` sends; the engines here speak to the servers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from palestra.inference.servers.replica import ServerReplica

__all__ = ["GROUP", "Invitation", "ReceivingEngine", "Send", "WeightBucket", "while_sending"]

GROUP = "palestra-weights"
"""The name of the group on the servers."""


class WeightBucket(NamedTuple):
    """Some tensors, one after the other in one buffer."""

    names: tuple[str, ...]
    """Of the model's checkpoint."""
    dtypes: tuple[str, ...]
    """Such as ``bfloat16``."""
    shapes: tuple[tuple[int, ...], ...]
    data: Any
    """The bytes of all tensors: a flat torch tensor of type uint8."""


class Invitation(NamedTuple):
    """How the workers of a server find the group."""

    address: str
    port: int
    size: int
    """The number of processes: the workers, and the learner as rank 0."""
    backend: str
    """``nccl`` or ``gloo``."""
    bucket: int
    """A bucket ends with the tensor that makes it larger than this many bytes."""
    key: str = ""
    """NCCL's unique id in base64. If there is one, ``address`` and ``port`` are not used."""


Send = Callable[[WeightBucket, bool], Awaitable[None]]
"""Broadcast a bucket to the workers of a server: at once, or if the second argument is true, tensor by tensor."""


@runtime_checkable
class ReceivingEngine(Protocol):
    """An engine whose servers can receive weights over a process group."""

    unique_id: bool
    """Whether workers join an NCCL group by its unique id instead of an address."""

    async def workers(self, replica: ServerReplica) -> int:
        """Return the number of processes of the server that receive weights."""

    async def join_group(self, replica: ServerReplica, invitation: Invitation) -> None:
        """Make the workers join the group. Returns when all have joined, so the learner must join meanwhile."""

    async def receive(self, replica: ServerReplica, buckets: Sequence[WeightBucket], send: Send) -> None:
        """Make the workers load ``buckets``, which ``send`` broadcasts meanwhile."""


async def while_sending(call: Awaitable[None], sending: Awaitable[None]) -> None:
    """Wait for both. If one fails, leave the other: a broadcast without a receiver may never return."""
    tasks = [asyncio.ensure_future(work) for work in (call, sending)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
