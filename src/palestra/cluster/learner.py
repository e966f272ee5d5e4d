"""Training on a cluster: one learner in one or more ranks, its rollout workers and its inference replicas, all placed by Ray.

The learner is an actor that runs a whole ``Trainer``. It starts the other ranks, the workers and the replicas, and they end
with it. If it dies, Ray starts it again on some node, and it continues from its last checkpoint; the run folder must be on a
file system that all nodes share. If another rank dies, the learner ends itself, with the same effect. Tensors do not pass
through Ray: the ranks have a torch process group, and weights go from the learner to the replicas through the run folder.
"""

import asyncio
import math
import os
import uuid
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from palestra.cluster.config import ClusterConfig
from palestra.cluster.dispatcher import Dispatcher
from palestra.cluster.rays import RayProvider, connect
from palestra.core import Engine
from palestra.durable import Inside
from palestra.durable.checkpoint import Checkpoints
from palestra.errors import PalestraError
from palestra.foundation.resources.connections import free_port
from palestra.inference.servers.placed import LASTING, PAUSE, Answering, Relay, ReplicaSettings, start_replicas
from palestra.inference.servers.publishing import WEIGHTS, PublishedWeights
from palestra.rollouts import RolloutFunction

if TYPE_CHECKING:
    from palestra.recipes.config import TrainConfig

__all__ = ["LearnerActor", "Learning", "train_on_cluster"]

_AFTERMATH = 10.0
"""Seconds until all ranks know that one was lost."""


class Learning(msgspec.Struct, frozen=True):
    """A run on a cluster."""

    config: bytes
    """The ``TrainConfig`` as JSON."""
    folder: str
    cluster: ClusterConfig = ClusterConfig()
    replicas: int = 1
    """Number of inference replicas. With 0, workers ask the learner, which uses the recipe's own engine."""
    ranks: int = 1
    """Number of learner processes, which share parameters and passes."""
    learner: dict[str, Any] = {}
    """Ray's options for the actor of a rank: ``{num_gpus = 1}``."""
    replica: dict[str, Any] = {}
    """Ray's options for the actor of a replica."""
    check: bool = False
    """Whether to try model, chat template and environments together before the first step."""

    @property
    def needs(self) -> dict[str, float]:
        """The resources that the run needs: for the learner, its replicas, and the workers (at least one per pool)."""
        kept = (self.ranks, self.learner), (self.replicas, self.replica)
        playing = sum(pool.cpus * (pool.workers or 1) for pool in self.cluster.pools)
        return {
            "CPU": playing + sum(count * options.get("num_cpus", LASTING["num_cpus"]) for count, options in kept),
            "GPU": sum(count * options.get("num_gpus", 0) for count, options in kept),
        }


class LearnerActor(Answering):
    """Runs a trainer to its end. Without replicas, workers sample through this actor from the recipe's own engine."""

    def __init__(self) -> None:
        super().__init__()
        self._life = uuid.uuid4().hex
        self._run: asyncio.Task[int] | None = None
        self._notes: list[str] = []
        self._checked = asyncio.Event()

    def life(self) -> str:
        """Return the name of this process. It changes with every restart."""
        return self._life

    async def notes(self) -> list[str]:
        """Return the notes of the preflight, once it has ended."""
        await self._checked.wait()
        return self._notes

    async def train(self, learning: Learning) -> int:
        """Train from the last checkpoint to the last step. Return how many workers were lost.

        A second call, after a lost connection, joins the running training: two trainings would write the same folder.
        """
        if self._run is None:
            self._run = asyncio.create_task(self._train(learning))
        return await asyncio.shield(self._run)

    async def _train(self, learning: Learning) -> int:
        from palestra.recipes.config import TrainConfig
        from palestra.training.run import claimed

        config = msgspec.json.decode(learning.config, type=TrainConfig)
        with claimed(config, Path(learning.folder)):
            return await self._train_alone(config, learning)

    async def _train_alone(self, config: "TrainConfig", learning: Learning) -> int:
        """Train in a folder that this process holds."""
        import ray

        meeting, others = await _start_ranks(ray, config, learning) if learning.ranks > 1 else ("", [])
        run = asyncio.create_task(self._lead(config, learning, meeting))
        await asyncio.wait({run, *others}, return_when=asyncio.FIRST_COMPLETED)
        if not _well(run):
            # The first failure may be a consequence: if one rank is lost, all others fail too.
            await asyncio.wait({run, *others}, timeout=_AFTERMATH)
            if any(isinstance(_error(other), ray.exceptions.RayActorError) for other in others):
                os._exit(1)  # Ray restarts this actor, which starts all ranks again
            for failed in filter(_error, others):
                await failed
        return await run

    async def _lead(self, config: "TrainConfig", learning: Learning, meeting: str) -> int:
        from palestra.training.learner.ranks import join

        if meeting:
            await asyncio.to_thread(join, 0, learning.ranks, meeting, config.model.device)
        try:
            return await self._play_and_learn(config, learning)
        finally:
            if self._engine is not None:  # it may have started servers, which end with the run
                await self._engine.close()

    async def _play_and_learn(self, config: "TrainConfig", learning: Learning) -> int:
        import ray

        from palestra.training.assembly import assemble, build_engine, first_model
        from palestra.training.learner.ranks import Leader
        from palestra.training.run import checked

        folder = Path(learning.folder)
        engine: Engine
        if learning.replicas:  # before any worker: workers take all the room that is left
            model = await asyncio.to_thread(first_model, config, folder, say=self._notes.append)
            engine = await start_replicas(ray, _settings(config, model, learning.folder), learning.replicas, **learning.replica)
        else:
            self._engine = await asyncio.to_thread(build_engine, config, folder, say=self._notes.append)
            engine = Relay(ray.get_runtime_context().current_actor, self._engine)
        trainer = await asyncio.to_thread(assemble, config, folder, engine=engine, say=self._notes.append)
        if learning.check:
            await checked(trainer)
        self._checked.set()
        async with Dispatcher(RayProvider(), learning.cluster) as dispatcher:
            trainer.rollout = self.play_with(dispatcher)
            await trainer.train()
            if isinstance(trainer.learner, Leader):
                trainer.learner.dismiss()
            return dispatcher.deaths

    def play_with(self, dispatcher: Dispatcher) -> RolloutFunction:
        """The configuration of the workers that play the episodes."""
        return dispatcher.rollout


class Rank:
    """One of the learner's other ranks."""

    def follow(self, config: bytes, model: str, rank: int, ranks: int, meeting: str) -> None:
        """Join the other ranks and follow the leader to the end of the run."""
        from palestra.recipes.config import TrainConfig
        from palestra.training.assembly import build_learner
        from palestra.training.learner.ranks import follow, join

        settings = msgspec.json.decode(config, type=TrainConfig)
        join(rank, ranks, meeting, settings.model.device)
        follow(build_learner(settings, model))


async def _start_ranks(ray: Any, config: "TrainConfig", learning: Learning) -> tuple[str, list[asyncio.Task[None]]]:
    """Start the other ranks. Return the address at which they wait for the leader, and their tasks."""
    from palestra.training.assembly import first_model

    # Before the other ranks start: one process does the warm start, and they would have to wait for it.
    model = await asyncio.to_thread(first_model, config, Path(learning.folder))
    meeting = f"tcp://{ray.util.get_node_ip_address()}:{free_port('')}"
    remote_rank = ray.remote(Rank).options(**{"num_cpus": LASTING["num_cpus"], **learning.learner})
    actors = [remote_rank.remote() for _ in range(1, learning.ranks)]
    work = [
        asyncio.create_task(_kept(actor, actor.follow.remote(learning.config, model, rank, learning.ranks, meeting)))
        for rank, actor in enumerate(actors, 1)
    ]
    return meeting, work


async def _kept(actor: Any, work: Any) -> None:
    """Wait for ``work`` and keep a reference to its ``actor``: Ray ends an actor without references."""
    await work
    del actor


def _error(task: asyncio.Task[Any]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


def _well(task: asyncio.Task[Any]) -> bool:
    return task.done() and _error(task) is None


def _settings(config: "TrainConfig", model: str, folder: str) -> ReplicaSettings:
    engine = config.engine
    weights = PublishedWeights(str(Path(folder) / WEIGHTS), model, engine.dtype)
    return ReplicaSettings(weights, engine.batch, engine.rows, config.engine_device)


async def train_on_cluster(
    learning: Learning,
    *,
    kind: type[LearnerActor] = LearnerActor,
    show: Callable[[Mapping[str, Any]], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Place a learner and wait until the run ends, however often the learner dies. Return the number of its restarts.

    ``show`` is called here with the metrics of every step, which are read from the run's folder; ``say`` with the notes of the
    preflight.
    """
    # On one machine all actors share the cores, however few there are.
    ray = connect(learning.cluster.address, num_cpus=max(os.cpu_count() or 1, math.ceil(learning.needs["CPU"])))
    _say_if_short(learning.needs, ray.cluster_resources())
    actor = ray.remote(kind).options(**{**LASTING, **learning.learner}).remote()
    steps = _Steps(Path(learning.folder), show)
    watching = asyncio.create_task(steps.watch()), asyncio.create_task(_tell(ray, actor, say))
    lives = set()  # not a count of errors: a call also fails if it arrives while the actor restarts
    try:
        while True:
            try:
                lives.add(await actor.life.remote())
                await actor.train.remote(learning)
                return len(lives) - 1
            except ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(PAUSE)
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, PalestraError) else error) from None
    finally:
        for task in watching:
            task.cancel()
        ray.kill(actor)
        steps.look()


def _say_if_short(needs: Mapping[str, float], there: Mapping[str, float]) -> None:
    """Warn that the cluster is too small. This is not an error, because a cluster may grow."""
    for kind, needed in needs.items():
        if there.get(kind, 0.0) < needed:
            has = f"the cluster has {there.get(kind, 0.0):g}"
            warnings.warn(f"this run needs {needed:g} {kind}s and {has}: it waits until there are more", stacklevel=3)


async def _tell(ray: Any, actor: Any, say: Callable[[str], None]) -> None:
    with suppress(ray.exceptions.RayActorError):  # a restarted actor has no new notes
        for note in await actor.notes.remote():
            say(note)


class _Steps:
    """Shows the steps after the newest checkpoint of a run folder, each once, even if a restarted learner repeats some."""

    def __init__(self, folder: Path, show: Callable[[Mapping[str, Any]], None]) -> None:
        self._path = Inside(folder) / "metrics.jsonl"
        self._show = show
        saved = Checkpoints(Inside(folder) / "checkpoints").paths()
        self._shown = int(saved[0].name.rpartition("-")[2]) if saved else 0

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.look()

    def look(self) -> None:
        """Show the new steps."""
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        for line in (line for line in lines if line.endswith(b"\n")):
            metrics = msgspec.json.decode(line)
            if metrics["step"] > self._shown:
                self._shown = metrics["step"]
                self._show(metrics)
