"""Training on a cluster: one learner in one or more ranks, its rollout workers and its inference replicas, all placed by Ray.

The learner is an actor that runs a whole ``Trainer``: it hires the other ranks, the workers and the replicas, so they come and
go with it. If it dies, Ray starts it again on some node, and it goes on from its last checkpoint; the run's folder must be on
a file system that all nodes share. If another rank dies, it ends itself, to the same effect. Tensors do not pass through Ray:
ranks have torch's own process group, and weights go from the learner to the replicas through that folder.
"""

import asyncio
import math
import os
import socket
import uuid
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from palestra.cluster.config import ClusterConfig
from palestra.cluster.crew import Crew
from palestra.cluster.rays import RayFleet, connect
from palestra.cluster.replicas import LASTING, PAUSE, Answering, Relay, ReplicaSettings, hire_replicas
from palestra.errors import PalestraError
from palestra.rollout import Rollout

if TYPE_CHECKING:
    from palestra.training.config import TrainConfig

__all__ = ["LearnerActor", "Learning", "train_on_cluster"]

_AFTERMATH = 10.0
"""Seconds in which the loss of a rank is known to all."""


class Learning(msgspec.Struct, frozen=True):
    """A run on a cluster."""

    config: bytes
    """The ``TrainConfig`` as JSON."""
    folder: str
    cluster: ClusterConfig = ClusterConfig()
    replicas: int = 1
    """Inference replicas; with 0 workers ask the learner, which asks the recipe's servers or its own copy of the model."""
    ranks: int = 1
    """Processes among which the learner's parameters and passes are shared."""
    learner: dict[str, Any] = {}
    """Ray's options for the actor of a rank: ``{num_gpus = 1}``."""
    replica: dict[str, Any] = {}
    """Ray's options for a replica's."""
    check: bool = False
    """Whether model, template and environments are tried together before the first step."""

    @property
    def needs(self) -> dict[str, float]:
        """What it cannot do without: the learner, its replicas, and the workers asked for, or one of each pool."""
        kept = (self.ranks, self.learner), (self.replicas, self.replica)
        playing = sum(pool.cpus * (pool.workers or 1) for pool in self.cluster.pools)
        return {
            "CPU": playing + sum(count * options.get("num_cpus", LASTING["num_cpus"]) for count, options in kept),
            "GPU": sum(count * options.get("num_gpus", 0) for count, options in kept),
        }


class LearnerActor(Answering):
    """Runs a trainer to its end. Without replicas the workers ask it, and it asks the recipe's own engine."""

    def __init__(self) -> None:
        super().__init__()
        self._life = uuid.uuid4().hex
        self._run: asyncio.Task[int] | None = None
        self._notes: list[str] = []
        self._checked = asyncio.Event()

    def life(self) -> str:
        """What this process is called: another one after every restart."""
        return self._life

    async def notes(self) -> list[str]:
        """What one should know before the first step, when that has been found out."""
        await self._checked.wait()
        return self._notes

    async def train(self, learning: Learning, evaluate: Any = None) -> int:
        """Go on from the last checkpoint to the last step; how many workers were lost on the way.

        Whoever lost the connection and asks again joins the run that is under way: two of them would write the same folder.
        """
        if self._run is None:
            self._run = asyncio.create_task(self._train(learning, evaluate))
        return await asyncio.shield(self._run)

    async def _train(self, learning: Learning, evaluate: Any) -> int:
        import ray

        from palestra.training.config import TrainConfig

        config = msgspec.json.decode(learning.config, type=TrainConfig)
        meeting, others = await _hire_ranks(ray, config, learning) if learning.ranks > 1 else ("", [])
        run = asyncio.create_task(self._lead(config, learning, meeting, evaluate))
        await asyncio.wait({run, *others}, return_when=asyncio.FIRST_COMPLETED)
        if not _well(run):
            # What failed first may be a consequence: the loss of one rank is an error in all others.
            await asyncio.wait({run, *others}, timeout=_AFTERMATH)
            if any(isinstance(_error(other), ray.exceptions.RayActorError) for other in others):
                os._exit(1)  # the next life hires all of them anew
            for failed in filter(_error, others):
                await failed
        return await run

    async def _lead(self, config: "TrainConfig", learning: Learning, meeting: str, evaluate: Any) -> int:
        import ray

        from palestra.training.assembly import assemble
        from palestra.training.preflight import examine
        from palestra.training.ranks import Leader, join

        if meeting:
            await asyncio.to_thread(join, 0, learning.ranks, meeting, config.model.device)
        trainer = await asyncio.to_thread(assemble, config, Path(learning.folder), evaluate=evaluate)
        if learning.replicas:  # before any worker: as many of those are hired as there is room for, and would leave none
            await trainer.engine.close()  # its place is taken
            settings = _settings(config, trainer.learner.network.config.path, learning.folder)
            engine = await hire_replicas(ray, settings, learning.replicas, **learning.replica)
        else:
            self._engine = trainer.engine
            engine = Relay(ray.get_runtime_context().current_actor, trainer.engine)
        trainer.engine = trainer.policy.engine = engine
        if learning.check and not trainer.checkpoints.paths():
            await examine(trainer, self._notes.append)
        self._checked.set()
        async with Crew(RayFleet(), learning.cluster) as crew:
            trainer.rollout = self.play_with(crew)
            await trainer.train()
            if isinstance(trainer.learner, Leader):
                trainer.learner.dismiss()
            return crew.deaths

    def play_with(self, crew: Crew) -> Rollout:
        """Who plays the episodes."""
        return crew.rollout


class Rank:
    """One of the learner's other ranks."""

    def follow(self, config: bytes, model: str, rank: int, ranks: int, meeting: str) -> None:
        """Join the others and do what the leader does, to the end of the run."""
        from palestra.training.assembly import build_learner
        from palestra.training.config import TrainConfig
        from palestra.training.ranks import follow, join

        settings = msgspec.json.decode(config, type=TrainConfig)
        join(rank, ranks, meeting, settings.model.device)
        follow(build_learner(settings, model))


async def _hire_ranks(ray: Any, config: "TrainConfig", learning: Learning) -> tuple[str, list[asyncio.Task[None]]]:
    """Where the other ranks wait for the leader, and what they do from then on."""
    from palestra.training.assembly import first_model

    # Before the others are there: a warm start is learnt by one process, and they would have to wait for it.
    model = await asyncio.to_thread(first_model, config, Path(learning.folder))
    meeting = f"tcp://{ray.util.get_node_ip_address()}:{_free_port()}"
    hired = ray.remote(Rank).options(**{"num_cpus": LASTING["num_cpus"], **learning.learner})
    actors = [hired.remote() for _ in range(1, learning.ranks)]
    work = [
        asyncio.create_task(_kept(actor, actor.follow.remote(learning.config, model, rank, learning.ranks, meeting)))
        for rank, actor in enumerate(actors, 1)
    ]
    return meeting, work


async def _kept(actor: Any, work: Any) -> None:
    """Wait for ``work``, and hold its ``actor``: Ray ends one that nobody refers to."""
    await work
    del actor


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _error(task: asyncio.Task[Any]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


def _well(task: asyncio.Task[Any]) -> bool:
    return task.done() and _error(task) is None


def _settings(config: "TrainConfig", model: str, folder: str) -> ReplicaSettings:
    engine = config.engine
    return ReplicaSettings(model, str(Path(folder) / "weights"), engine.batch, engine.rows, engine.dtype, engine.device)


async def train_on_cluster(
    learning: Learning,
    *,
    kind: type[LearnerActor] = LearnerActor,
    evaluate: Any = None,
    show: Callable[[Mapping[str, Any]], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Place a learner and wait until it is done, however often it dies. How many more lives it needed than one.

    ``evaluate`` is a trainer's, and goes to the learner; ``show`` is called here with what the run's folder says of each step,
    ``say`` with what one should know before the first.
    """
    # One machine is shared by all of them, however few cores it has.
    ray = connect(learning.cluster.address, num_cpus=max(os.cpu_count() or 1, math.ceil(learning.needs["CPU"])))
    _say_if_short(learning.needs, ray.cluster_resources())
    actor = ray.remote(kind).options(**{**LASTING, **learning.learner}).remote()
    steps = _Steps(Path(learning.folder) / "metrics.jsonl", show)
    watching = asyncio.create_task(steps.watch()), asyncio.create_task(_tell(ray, actor, say))
    lives = set()  # not a count of errors: a call that reaches an actor between two lives fails as well
    try:
        while True:
            try:
                lives.add(await actor.life.remote())
                await actor.train.remote(learning, evaluate)
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
    """A cluster may grow, so this is no error; but nobody should wait without knowing what for."""
    for kind, needed in needs.items():
        if there.get(kind, 0.0) < needed:
            has = f"the cluster has {there.get(kind, 0.0):g}"
            warnings.warn(f"this run needs {needed:g} {kind}s and {has}: it waits until there are more", stacklevel=3)


async def _tell(ray: Any, actor: Any, say: Callable[[str], None]) -> None:
    with suppress(ray.exceptions.RayActorError):  # its next life has nothing new to say
        for note in await actor.notes.remote():
            say(note)


class _Steps:
    """The steps in a run's folder, each shown once, also those that a later life of the learner makes again."""

    def __init__(self, path: Path, show: Callable[[Mapping[str, Any]], None]) -> None:
        self._path = path
        self._show = show
        self._shown = -1

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.look()

    def look(self) -> None:
        """Show what is new."""
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        for line in (line for line in lines if line.endswith(b"\n")):
            metrics = msgspec.json.decode(line)
            if metrics["step"] > self._shown:
                self._shown = metrics["step"]
                self._show(metrics)
