"""Training on a cluster: one learner, its rollout workers and its inference replicas, all placed by Ray.

The learner is an actor that runs a whole ``Trainer``: it hires the workers and the replicas, so they come and go with it. If it
dies, Ray starts it again on some node, and it goes on from its last checkpoint; the run's folder must be on a file system
that all nodes share. Tensors do not pass through Ray: weights go from the learner to the replicas through that folder.
"""

import asyncio
import math
import os
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from palestra.cluster.config import ClusterConfig
from palestra.cluster.crew import Crew
from palestra.cluster.rays import RayFleet, connect
from palestra.cluster.replicas import PAUSE, Answering, Relay, ReplicaSettings, hire_replicas
from palestra.models import find_model
from palestra.rollout import Rollout

if TYPE_CHECKING:
    from palestra.training.config import TrainConfig

__all__ = ["LearnerActor", "Learning", "train_on_cluster"]


class Learning(msgspec.Struct, frozen=True):
    """A run on a cluster."""

    config: bytes
    """The ``TrainConfig`` as JSON."""
    folder: str
    cluster: ClusterConfig = ClusterConfig()
    replicas: int = 1
    """Inference replicas; with 0 workers ask the learner, which asks the recipe's servers or its own copy of the model."""
    learner: dict[str, Any] = {}
    """Ray's options for the learner's actor: ``{num_gpus = 8}``."""
    replica: dict[str, Any] = {}
    """Ray's options for a replica's."""

    @property
    def cpus(self) -> float:
        """What it cannot do without: the learner, its replicas, and the workers asked for, or one of each pool."""
        inference = self.replicas * self.replica.get("num_cpus", 1)
        playing = sum(pool.cpus * (pool.workers or 1) for pool in self.cluster.pools)
        return float(self.learner.get("num_cpus", 1) + inference + playing)


class LearnerActor(Answering):
    """Runs a trainer to its end. Without replicas the workers ask it, and it asks the recipe's own engine."""

    def __init__(self) -> None:
        super().__init__()
        self._life = uuid.uuid4().hex
        self._run: asyncio.Task[int] | None = None

    def life(self) -> str:
        """What this process is called: another one after every restart."""
        return self._life

    async def train(self, learning: Learning, evaluate: Any = None) -> int:
        """Go on from the last checkpoint to the last step; how many workers were lost on the way.

        Whoever lost the connection and asks again joins the run that is under way: two of them would write the same folder.
        """
        if self._run is None:
            self._run = asyncio.create_task(self._train(learning, evaluate))
        return await asyncio.shield(self._run)

    async def _train(self, learning: Learning, evaluate: Any) -> int:
        import ray

        from palestra.training.assembly import assemble
        from palestra.training.config import TrainConfig

        config = msgspec.json.decode(learning.config, type=TrainConfig)
        trainer = assemble(config, Path(learning.folder), evaluate=evaluate)
        if learning.replicas:  # before any worker: as many of those are hired as there is room for, and would leave none
            await trainer.engine.close()  # its place is taken
            engine = await hire_replicas(ray, _settings(config, learning), learning.replicas, **learning.replica)
        else:
            self._engine = trainer.engine
            engine = Relay(ray.get_runtime_context().current_actor, trainer.engine)
        trainer.engine = trainer.policy.engine = engine
        async with Crew(RayFleet(), learning.cluster) as crew:
            trainer.rollout = self.play_with(crew)
            await trainer.train()
            return crew.deaths

    def play_with(self, crew: Crew) -> Rollout:
        """Who plays the episodes."""
        return crew.rollout


def _settings(config: "TrainConfig", learning: Learning) -> ReplicaSettings:
    folder = Path(learning.folder)
    warm = folder / "warm-start"
    return ReplicaSettings(
        model=str(warm if warm.exists() else find_model(config.model.path)),
        weights=str(folder / "weights"),
        batch=config.engine.batch,
        rows=config.engine.rows,
        dtype=config.engine.dtype,
    )


async def train_on_cluster(
    learning: Learning,
    *,
    kind: type[LearnerActor] = LearnerActor,
    evaluate: Any = None,
    show: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> int:
    """Place a learner and wait until it is done, however often it dies. How many more lives it needed than one.

    ``evaluate`` is a trainer's, and goes to the learner; ``show`` is called here with what the run's folder says of each step.
    """
    # One machine is shared by all of them, however few cores it has.
    ray = connect(learning.cluster.address, num_cpus=max(os.cpu_count() or 1, math.ceil(learning.cpus)))
    _say_if_short(learning.cpus, ray.cluster_resources().get("CPU", 0.0))
    options = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": 0, "max_concurrency": 10_000, **learning.learner}
    actor = ray.remote(kind).options(**options).remote()
    watching = asyncio.create_task(_watch(Path(learning.folder) / "metrics.jsonl", show))
    lives = set()  # not a count of errors: a call that reaches an actor between two lives fails as well
    try:
        while True:
            try:
                lives.add(await actor.life.remote())
                await actor.train.remote(learning, evaluate)
                return len(lives) - 1
            except ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(PAUSE)
    finally:
        watching.cancel()
        ray.kill(actor)


def _say_if_short(needed: float, there: float) -> None:
    """A cluster may grow, so this is no error; but nobody should wait without knowing what for."""
    if there < needed:
        told = f"this run needs {needed:g} CPUs and the cluster has {there:g}: it waits until there are more"
        warnings.warn(told, stacklevel=2)


async def _watch(path: Path, show: Callable[[Mapping[str, Any]], None]) -> None:
    """Show every step once, also those that a later life of the learner makes again."""
    shown = -1
    while True:
        await asyncio.sleep(1.0)
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        for line in (line for line in lines if line.endswith(b"\n")):
            metrics = msgspec.json.decode(line)
            if metrics["step"] > shown:
                shown = metrics["step"]
                show(metrics)
