"""Inference on the cluster: ``hf`` engines as Ray actors, and the engine that asks them.

New weights go through a folder that all nodes share: written, hashed and renamed into place (``training.checkpoint``), then
read by each replica. ``update_weights`` returns when every replica has them, so the trainer's rule for staleness holds for all
workers. A replica that was restarted reads the newest version before it answers anybody.

To sample is to repeat a pure function of prompt, seed and weights. So a call that is lost is made again, at another replica.
"""

import asyncio
import itertools
import os
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from palestra.core import Engine, Generation, Sampling, Session
from palestra.encoding import Ints, decode_msgpack, encode_msgpack
from palestra.errors import InfrastructureError
from palestra.training.checkpoint import Checkpoints
from palestra.trajectory import Finish, Tokens

__all__ = ["Answering", "Relay", "Replica", "ReplicaSettings", "Replicas", "hire_replicas"]

PATIENCE = 120.0
"""Seconds in which a lost replica must be back, or another answer for it."""
PAUSE = 0.2
LASTING = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": 0, "max_concurrency": 10_000}
"""Ray's options of an actor that outlives its process, and whose calls nobody but us repeats."""
_SESSIONS = 4096
_FILE = "model.safetensors"


class ReplicaSettings(NamedTuple):
    """What a replica is made of."""

    model: str
    weights: str
    """The folder of versions."""
    batch: int = 64
    rows: int = 128
    dtype: str = "float32"
    device: str = "cpu"


class Answering:
    """An actor's side of sampling: an engine, and the contexts it was asked to go on with."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    async def generate(self, prompt: bytes, sampling: bytes, session: str) -> tuple[bytes, str]:
        """``Tokens`` as msgpack, and why they ended."""
        assert self._engine is not None, "nobody is asked before there is an engine"
        own = self._sessions.setdefault(session, Session())
        self._sessions.move_to_end(session)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        asked = decode_msgpack(prompt, Ints), decode_msgpack(sampling, Sampling)
        tokens, finish = await self._engine.generate(*asked, own)
        return encode_msgpack(tokens), finish.value


class Replica(Answering):
    """An ``HFEngine`` in a process of its own. Ray's side of it is added by ``hire_replicas``."""

    def __init__(self, settings: ReplicaSettings) -> None:
        super().__init__()
        import torch
        import transformers

        from palestra.engines.hf import HFEngine

        self._settings = settings
        tokenizer = transformers.AutoTokenizer.from_pretrained(settings.model)
        model = transformers.AutoModelForCausalLM.from_pretrained(settings.model, dtype=getattr(torch, settings.dtype))
        self._engine = self._own = HFEngine(
            model.to(settings.device), decode=tokenizer.decode, batch=settings.batch, rows=settings.rows
        )
        self._loading = asyncio.Lock()
        self._current = False

    async def about(self) -> tuple[int, int, int]:
        """Its process, the longest context, and the version of its weights."""
        await self._catch_up()
        return os.getpid(), self._own.context_length, self._own.version

    async def generate(self, prompt: bytes, sampling: bytes, session: str) -> tuple[bytes, str]:
        if not self._current:
            await self._catch_up()
        return await super().generate(prompt, sampling, session)

    async def load(self, version: int) -> None:
        """Take ``version``, which is the newest in the folder."""
        self._current = False
        await self._catch_up()
        if self._own.version != version:
            raise InfrastructureError(f"version {version} is not in {self._settings.weights}: do all nodes share that folder?")

    async def _catch_up(self) -> None:
        """Have the newest version there is, unless that was seen to already."""
        async with self._loading:
            found = None if self._current else await asyncio.to_thread(Checkpoints(Path(self._settings.weights)).newest)
            if found is not None:
                from safetensors.torch import load_file

                path, manifest = found
                state = await asyncio.to_thread(load_file, path / _FILE)
                await self._own.update_weights(state, manifest.step)
            self._current = True


class Replicas:
    """The engine of workers and trainer: whatever is asked goes to one of the replicas. It can be sent to other processes."""

    def __init__(self, actors: list[Any], context_length: int, weights: str) -> None:
        self.context_length = context_length
        self._actors = actors
        self._weights = weights
        self._names = itertools.count()
        self._places: WeakKeyDictionary[Session, tuple[int, str]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type, tuple[list[Any], int, str]]:
        return Replicas, (self._actors, self.context_length, self._weights)

    async def generate(self, prompt: Ints, sampling: Sampling, session: Session | None = None) -> Generation:
        place, name = self._place(session)
        asked = encode_msgpack(prompt), encode_msgpack(sampling), name
        data, finish = await self._persist(place, "generate", *asked)
        return Generation(decode_msgpack(data, Tokens), Finish(finish))

    async def update_weights(self, source: Mapping[str, Any], version: int) -> None:
        await asyncio.to_thread(self._write, source, version)
        async with asyncio.TaskGroup() as group:
            for place in range(len(self._actors)):
                group.create_task(self._persist(place, "load", version, anywhere=False))

    async def pause(self) -> None:
        """Nothing: a replica takes new weights between two tokens."""

    async def resume(self) -> None:
        """Nothing, as nothing was paused."""

    async def close(self) -> None:
        """Nothing: the replicas belong to whoever hired them."""

    def _place(self, session: Session | None) -> tuple[int, str]:
        """The replica that has this context in its cache, and the context's name there."""
        number = next(self._names)
        new = number % len(self._actors), f"{os.getpid()}.{id(self)}.{number}"
        return new if session is None else self._places.setdefault(session, new)

    async def _persist(self, place: int, method: str, *arguments: Any, anywhere: bool = True) -> Any:
        """Call a replica, and the next one if it is lost."""
        import ray

        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        while True:
            try:
                return await getattr(self._actors[place], method).remote(*arguments)
            except ray.exceptions.RayActorError as error:
                if loop.time() > until:
                    raise InfrastructureError(f"no replica answers: {error}") from None
                await asyncio.sleep(PAUSE)
            place = (place + anywhere) % len(self._actors)

    def _write(self, source: Mapping[str, Any], version: int) -> None:
        from safetensors.torch import save_file

        versions = Checkpoints(Path(self._weights))
        for path in versions.paths():
            if int(path.name.rpartition("-")[2]) > version:  # of an earlier life of the learner, which got further
                shutil.rmtree(path)
        # A copy each: tied weights are one tensor under two names, which the format does not know.
        save_file({name: tensor.detach().cpu().clone() for name, tensor in source.items()}, versions.begin(version) / _FILE)
        versions.commit(version)


class Relay(Replicas):
    """Sampling by the engine of one actor, which keeps it: servers, or a copy of the weights in the learner's own process."""

    def __init__(self, actor: Any, engine: Engine) -> None:
        super().__init__([actor], 0, "")
        self._source = engine

    def __reduce__(self) -> tuple[type, tuple[list[Any], int, str]]:
        # Some engines learn how long a context may be when they are first used.
        return Replicas, (self._actors, self._source.context_length, "")

    async def generate(self, prompt: Ints, sampling: Sampling, session: Session | None = None) -> Generation:
        return await self._source.generate(prompt, sampling, session)

    async def update_weights(self, source: Any, version: int) -> None:
        await self._source.update_weights(source, version)
        self.context_length = self._source.context_length


async def hire_replicas(ray: Any, settings: ReplicaSettings, count: int, **resources: Any) -> Replicas:
    """``count`` replicas, placed by Ray; ``resources`` are Ray's options of an actor."""
    actors = [ray.remote(Replica).options(**{**LASTING, **resources}).remote(settings) for _ in range(count)]
    contexts = [(await actor.about.remote())[1] for actor in actors]
    return Replicas(actors, min(contexts), settings.weights)
