"""The cluster that the options of ``palestra eval``, ``rollout`` and ``train`` choose."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import typer

from palestra.cluster import ClusterConfig, Dispatcher, load_cluster_config
from palestra.errors import UsageError
from palestra.rollouts import RolloutFunction, play_episodes

__all__ = ["cluster_of", "dispatcher_of", "rollout_of"]


@asynccontextmanager
async def rollout_of(cluster: str | None, workers: int | None, file: Path | None) -> AsyncIterator[RolloutFunction]:
    """Where episodes are played: on the cluster that the options name, or in this process if they name none."""
    if cluster is None and file is None:
        if workers is not None:
            raise UsageError("--workers needs a cluster: name it with --cluster, or use --cluster local")
        yield play_episodes
        return
    async with dispatcher_of(cluster_of(cluster, workers, file)) as dispatcher:
        yield dispatcher.rollout
        typer.echo(f"workers lost: {dispatcher.deaths}", err=True)


def dispatcher_of(config: ClusterConfig) -> Dispatcher:
    """A dispatcher whose workers Ray starts."""
    from palestra.cluster.rays import RayProvider

    return Dispatcher(RayProvider(config.address), config)


def cluster_of(cluster: str | None, workers: int | None, file: Path | None) -> ClusterConfig:
    """The configuration of the cluster: options on the command line override those in the file."""
    config = ClusterConfig() if file is None else load_cluster_config(file)
    *special, last = config.pools
    if workers is not None:
        last = msgspec.structs.replace(last, workers=workers)
    return msgspec.structs.replace(config, address=cluster or config.address, pools=(*special, last))
