"""``engine.transfer = "collective"``: the learner broadcasts new weights to the servers over process groups of their own.

The weights are gathered once per version, one decoder layer at a time, into buckets of bfloat16 under the names of the
checkpoint, tied weights once. The buckets stay in the memory of rank 0's host until the next version (2 bytes per parameter).
So a server that is restarted meanwhile gets the version that the others have, whatever the learner computes by then.

Each server has a group with the learner. Over gloo, a server that dies in the middle breaks its own group alone: the others get
their weights, and the dead one gets them again, in a new group, when it answers. NCCL carries the groups if the learner is on a
GPU. vLLM's workers join by the unique id of NCCL, SGLang's by the address of a store. With vLLM, a broadcast over NCCL has no
time limit and cannot be aborted: a server that dies in it stops the learner.
"""

import asyncio
import base64
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import aiohttp
import torch
import torch.distributed as dist
from torch import Tensor

from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.foundation.resources.connections import free_port
from palestra.inference.servers.collective import GROUP, Invitation, ReceivingEngine, WeightBucket, while_sending
from palestra.inference.servers.publishing import PolicyWeights
from palestra.inference.servers.replica import ServerReplica

__all__ = ["CollectiveTransfer", "WeightStream", "bucketed"]

_MEETING, _TIMEOUT = timedelta(minutes=2), timedelta(minutes=10)
"""How long the learner waits for the workers of a server to join, and for a broadcast."""
_DTYPE = "bfloat16"


def bucketed(weights: Iterable[tuple[str, Tensor]], size: int) -> Iterator[WeightBucket]:
    """Divide tensors into buckets. Each ends with the tensor that makes it larger than ``size`` bytes, as on vLLM's side."""
    held: list[tuple[str, Tensor]] = []
    for name, tensor in weights:
        held.append((name, tensor))
        if sum(tensor.nbytes for _, tensor in held) > size:
            yield _bucket(held)
            held = []
    if held:
        yield _bucket(held)


def _bucket(held: list[tuple[str, Tensor]]) -> WeightBucket:
    return WeightBucket(
        names=tuple(name for name, _ in held),
        dtypes=tuple(str(tensor.dtype).removeprefix("torch.") for _, tensor in held),
        shapes=tuple(tuple(tensor.shape) for _, tensor in held),
        data=torch.cat([tensor.contiguous().view(-1).view(torch.uint8) for _, tensor in held]),
    )


class CollectiveTransfer:
    """Sends every version of the weights to the servers, in buckets of about ``bucket`` bytes."""

    def __init__(self, device: str, *, bucket: int = 1 << 30, say: Callable[[str], None] = lambda _: None) -> None:
        self.bucket = bucket
        self.say = say
        self._device = torch.device(device)
        self._channels: dict[tuple[str, int], _Channel] = {}
        """The groups, by address and number of restarts, certain or possible: after each, the server gets a new group."""

    def write(self, weights: PolicyWeights, version: int) -> "WeightStream":
        """Gather ``weights`` as ``version``."""
        return WeightStream(self, version, tuple(bucketed(weights.checkpoint_items(_DTYPE), self.bucket)))

    async def send(self, engine: Any, replica: ServerReplica, stream: "WeightStream") -> None:
        """Bring ``stream`` to one server. If it fails, the group of the server is given up."""
        if not isinstance(engine, ReceivingEngine):
            raise UsageError(f'engine.transfer = "collective" is for vLLM and SGLang servers, not for {type(engine).__name__}')
        try:
            channel = await self._channel(engine, replica)
            await engine.receive(replica, stream.buckets, channel.send)
        except PolicyError as error:
            raise _cannot_receive(replica, error) from None
        except (RuntimeError, aiohttp.ClientError, TimeoutError, InfrastructureError, OSError) as error:
            self._give_up(replica)
            if "not configured" in str(error):  # vLLM answers 500 if it lacks the option
                raise _cannot_receive(replica, error) from None
            what = f"{replica.url} did not get version {stream.version} of the weights ({str(error) or type(error).__name__})"
            self.say(f"{what}. It gets them when it answers again")
            raise InfrastructureError(what) from None

    async def _channel(self, engine: ReceivingEngine, replica: ServerReplica) -> "_Channel":
        key = replica.url, replica.restarts
        if key not in self._channels:
            self._give_up(replica)
            self._channels[key] = await self._joined(engine, replica)
        return self._channels[key]

    async def _joined(self, engine: ReceivingEngine, replica: ServerReplica) -> "_Channel":
        """Form a group with the workers of a server."""
        size = 1 + await engine.workers(replica)
        gpu = self._device.type == "cuda"
        unique = torch.cuda.nccl.unique_id() if gpu and engine.unique_id else b""
        invitation = Invitation(
            address=_own_address(replica.url),
            port=free_port(""),
            size=size,
            backend="nccl" if gpu else "gloo",
            bucket=self.bucket,
            key=base64.b64encode(unique).decode(),
        )
        kind: Callable[[Invitation, torch.device], _Channel] = _NcclChannel if unique else _GroupChannel
        channels: list[_Channel] = []

        async def join() -> None:
            channels.append(await asyncio.to_thread(kind, invitation, self._device))

        await while_sending(engine.join_group(replica, invitation), join())
        return channels[0]

    def _give_up(self, replica: ServerReplica) -> None:
        for key in [key for key in self._channels if key[0] == replica.url]:
            self._channels.pop(key).close()


def _cannot_receive(replica: ServerReplica, error: Exception) -> PolicyError:
    return PolicyError(
        f"{replica.url} does not receive weights over a process group ({error}). Start vLLM with "
        '--weight-transfer-config \'{"backend": "nccl"}\' and the environment variable VLLM_SERVER_DEV_MODE=1, or set '
        'engine.transfer = "folder"'
    )


class WeightStream(NamedTuple):
    """One version of the weights. ``RemoteEngine.update_weights`` loads it into every server, and again after a restart."""

    transfer: CollectiveTransfer
    version: int
    buckets: tuple[WeightBucket, ...]

    async def load_into(self, engine: Any, replica: ServerReplica) -> None:
        await self.transfer.send(engine, replica, self)


class _Channel(Protocol):
    """A way to the workers of one server."""

    async def send(self, bucket: WeightBucket, one_by_one: bool) -> None:
        """Broadcast a bucket."""

    def close(self) -> None:
        """Leave the group."""


class _GroupChannel:
    """A process group of torch that is not part of the default group."""

    def __init__(self, invitation: Invitation, device: torch.device) -> None:
        self._device = device
        address = f"tcp://{invitation.address}:{invitation.port}"
        store, _, _ = next(dist.rendezvous(address, 0, invitation.size, timeout=_MEETING))
        # The prefixes that torch gives a named group, and SGLang the store of the group.
        for prefix in (GROUP, f"{GROUP}/", f"{device.type}/"):
            store = dist.PrefixStore(prefix, store)
        kind: Any = dist.ProcessGroupNCCL if invitation.backend == "nccl" else dist.ProcessGroupGloo
        self._group = kind(store, 0, invitation.size, _TIMEOUT)

    async def send(self, bucket: WeightBucket, one_by_one: bool) -> None:
        await asyncio.to_thread(self._broadcast, bucket, one_by_one)

    def _broadcast(self, bucket: WeightBucket, one_by_one: bool) -> None:
        data = bucket.data.to(self._device)
        for part in _tensors(bucket, data) if one_by_one else [data]:
            self._group.broadcast(part, 0).wait()

    def close(self) -> None:
        self._group.abort()


class _NcclChannel:
    """A communicator of NCCL that was formed by its unique id."""

    def __init__(self, invitation: Invitation, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._communicator = torch.cuda.nccl.init_rank(invitation.size, base64.b64decode(invitation.key), 0)
            first = torch.zeros(1, device=device)  # vLLM's workers begin with this sum
            torch.cuda.nccl.all_reduce([first], comms=[self._communicator])
            torch.cuda.synchronize(device)

    async def send(self, bucket: WeightBucket, one_by_one: bool) -> None:
        await asyncio.to_thread(self._broadcast, bucket, one_by_one)

    def _broadcast(self, bucket: WeightBucket, one_by_one: bool) -> None:
        data = bucket.data.to(self._device)
        with torch.cuda.device(self._device):
            for part in _tensors(bucket, data) if one_by_one else [data]:
                torch.cuda.nccl.broadcast([part], root=0, comms=[self._communicator])
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        del self._communicator


def _tensors(bucket: WeightBucket, data: Tensor) -> Iterator[Tensor]:
    start = 0
    for dtype, shape in zip(bucket.dtypes, bucket.shapes, strict=True):
        kind: torch.dtype = getattr(torch, dtype)
        stop = start + torch.Size(shape).numel() * kind.itemsize
        yield data[start:stop].view(kind).view(shape)
        start = stop


def _own_address(url: str) -> str:
    """The address of this host on the way to the server at ``url``. Nothing is sent."""
    server = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server.hostname or "127.0.0.1", server.port or 80))
        address: str = probe.getsockname()[0]
        return address
