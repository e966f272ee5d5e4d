"""What the commands that can run on a cluster have in common: their options, and the crew that these mean."""

from pathlib import Path
from typing import Any

import msgspec
import typer

from palestra.cluster import ClusterConfig, Crew, LocalFleet, load_cluster_config

__all__ = ["CLUSTER", "CLUSTER_CONFIG", "WORKERS", "cluster_of", "crew_of"]

CLUSTER: Any = typer.Option(None, "--cluster", metavar="ADDRESS", help="Play on a Ray cluster: its address, auto, or local.")
WORKERS: Any = typer.Option(None, "--workers", min=1, help="Workers on the cluster; as many as fit by default.")
CLUSTER_CONFIG: Any = typer.Option(None, "--cluster-config", metavar="FILE", help="Pools of workers, in TOML.")


def crew_of(cluster: str | None, workers: int | None, file: Path | None) -> Crew:
    """The crew that the options mean; without ``cluster`` it works in this process."""
    config = cluster_of(cluster, workers, file)
    if cluster is None and file is None:
        return Crew(LocalFleet(), config)
    from palestra.cluster.rays import RayFleet

    return Crew(RayFleet(config.address), config)


def cluster_of(cluster: str | None, workers: int | None, file: Path | None) -> ClusterConfig:
    """The configuration that the options mean: those on the command line go over those in the file."""
    config = ClusterConfig() if file is None else load_cluster_config(file)
    *special, last = config.pools
    if workers is not None:
        last = msgspec.structs.replace(last, workers=workers)
    return msgspec.structs.replace(config, address=cluster or config.address, pools=(*special, last))
