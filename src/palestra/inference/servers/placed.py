"""Inference on the cluster: ``hf`` engines as Ray actors, and the engine that asks them.

The learner publishes new weights in a folder that all nodes share (``training.publishing``), and each replica reads them there.
``update_weights`` returns when every replica has the new version, so the trainer's limit of staleness holds for all workers. A
replica that was restarted reads the newest version before its first answer.

What a replica samples is a pure function of prompt, seed and weights. So a call that is lost is repeated at another replica.
"""

import asyncio
import itertools
import os
import secrets
from collections import OrderedDict
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from palestra.core import Engine, EngineSession, Generation, Sampling
from palestra.errors import InfrastructureError
from palestra.foundation.encoding import Ints, decode_msgpack, encode_msgpack
from palestra.inference.servers.publishing import PolicyWeights, PublishedWeights
from palestra.trajectory import Finish, Tokens

__all__ = ["Answering", "Relay", "Replica", "ReplicaSettings", "Replicas", "start_replicas"]

PATIENCE = 120.0
"""Seconds in which a lost replica must be back, or another one must answer."""
PAUSE = 0.2
LASTING = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": 0, "max_concurrency": 10_000}
"""Ray's options for an actor that is restarted with its process. Ray repeats no calls; we do."""
_SESSIONS = 4096


class ReplicaSettings(NamedTuple):
    """What a replica is built from."""

    weights: PublishedWeights
    """Where the versions of the weights are, and the model that they belong to."""
    batch: int = 64
    rows: int = 128
    device: str = "cpu"


class Answering:
    """The part of sampling inside an actor: an engine, and the contexts that later calls extend."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._sessions: OrderedDict[str, EngineSession] = OrderedDict()

    async def generate(self, prompt: bytes, sampling: bytes, session: str) -> tuple[bytes, str]:
        """Return ``Tokens`` as msgpack, and the finish reason."""
        assert self._engine is not None, "the engine is loaded before the first call"
        engine_session = self._sessions.setdefault(session, EngineSession())
        self._sessions.move_to_end(session)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        asked = decode_msgpack(prompt, Ints), decode_msgpack(sampling, Sampling)
        tokens, finish = await self._engine.generate(*asked, engine_session)
        return encode_msgpack(tokens), finish.value


class Replica(Answering):
    """An ``HFEngine`` in its own process. ``start_replicas`` makes it a Ray actor."""

    def __init__(self, settings: ReplicaSettings) -> None:
        super().__init__()
        import torch
        import transformers

        from palestra.inference.engines.hf import HFEngine

        self._settings = settings
        path, dtype = settings.weights.model, getattr(torch, settings.weights.dtype)
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(path)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
        self._engine = self._own = HFEngine(
            model.to(settings.device), decode=tokenizer.decode, batch=settings.batch, rows=settings.rows
        )
        self._loading = asyncio.Lock()
        self._current = False

    async def about(self) -> tuple[int, int, int]:
        """Return the process id, the context length, and the version of the weights."""
        await self._catch_up()
        return os.getpid(), self._own.context_length, self._own.version

    async def generate(self, prompt: bytes, sampling: bytes, session: str) -> tuple[bytes, str]:
        if not self._current:
            await self._catch_up()
        return await super().generate(prompt, sampling, session)

    async def load(self, version: int) -> None:
        """Load ``version``, which is the newest in the folder."""
        self._current = False
        await self._catch_up()
        if self._own.version != version:
            folder = self._settings.weights.folder
            raise InfrastructureError(f"version {version} is not in {folder}: do all nodes share that folder?")

    async def _catch_up(self) -> None:
        """Load the newest version, unless the replica has it already."""
        async with self._loading:
            newest = None if self._current else await asyncio.to_thread(self._settings.weights.newest)
            if newest is not None:
                await self._own.update_weights(*newest)
            self._current = True


class Replicas:
    """The engine of workers and trainer: passes every call to one of the replicas. It can be sent to other processes."""

    def __init__(self, actors: list[Any], context_length: int, weights: PublishedWeights | None) -> None:
        self.context_length = context_length
        self._actors = actors
        self._weights = weights
        self._name = secrets.token_hex(16)
        """Tells the contexts of this object from those of others, on whatever machine: process ids repeat in containers."""
        self._names = itertools.count()
        self._places: WeakKeyDictionary[EngineSession, tuple[int, str]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type, tuple[list[Any], int, PublishedWeights | None]]:
        return Replicas, (self._actors, self.context_length, self._weights)

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        replica, name = self._place(session)
        asked = encode_msgpack(prompt), encode_msgpack(sampling), name
        data, finish = await self._persist(replica, "generate", *asked)
        return Generation(decode_msgpack(data, Tokens), Finish(finish))

    async def update_weights(self, source: PolicyWeights, version: int) -> None:
        assert self._weights is not None, "only the learner updates weights"
        await asyncio.to_thread(self._weights.write, source, version)
        async with asyncio.TaskGroup() as group:
            for replica in range(len(self._actors)):
                group.create_task(self._persist(replica, "load", version, anywhere=False))

    async def pause(self) -> None:
        """Do nothing: a replica loads new weights between two tokens."""

    async def resume(self) -> None:
        """Do nothing, because ``pause`` pauses nothing."""

    async def close(self) -> None:
        """Do nothing: the replicas belong to the learner that started them."""

    def _place(self, session: EngineSession | None) -> tuple[int, str]:
        """Return the replica that has this context in its cache, and the context's name there."""
        number = next(self._names)
        new = number % len(self._actors), f"{self._name}.{number}"
        return new if session is None else self._places.setdefault(session, new)

    async def _persist(self, replica: int, method: str, *arguments: Any, anywhere: bool = True) -> Any:
        """Call a replica. If it is lost, call the next one."""
        import ray

        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        while True:
            try:
                return await getattr(self._actors[replica], method).remote(*arguments)
            except ray.exceptions.RayActorError as error:
                if loop.time() > until:
                    raise InfrastructureError(f"no replica answers: {error}") from error
                await asyncio.sleep(PAUSE)
            replica = (replica + 1) % len(self._actors) if anywhere else replica


class Relay(Replicas):
    """Samples from the engine of one actor: servers, or a copy of the model in the learner's process."""

    def __init__(self, actor: Any, engine: Engine) -> None:
        super().__init__([actor], 0, None)
        self._source = engine

    def __reduce__(self) -> tuple[type, tuple[list[Any], int, PublishedWeights | None]]:
        # Some engines know their context length only after the first use.
        return Replicas, (self._actors, self._source.context_length, None)

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        return await self._source.generate(prompt, sampling, session)

    async def update_weights(self, source: Any, version: int) -> None:
        await self._source.update_weights(source, version)
        self.context_length = self._source.context_length


async def start_replicas(ray: Any, settings: ReplicaSettings, count: int, **resources: Any) -> Replicas:
    """Start ``count`` replicas, placed by Ray. ``resources`` are Ray's options for an actor."""
    actors = [ray.remote(Replica).options(**{**LASTING, **resources}).remote(settings) for _ in range(count)]
    contexts = [(await actor.about.remote())[1] for actor in actors]
    return Replicas(actors, min(contexts), settings.weights)
