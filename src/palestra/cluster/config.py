"""The pools of workers, and the environments that each pool plays.

::

    address = "auto"

    [[pools]]                      # the first pool whose pattern matches an environment's id plays it
    match = "browser:*"
    cpus = 2.0
    resources = { chromium = 1.0 }
    concurrency = 4
    episodes_per_worker = 200      # then a new process, because of memory leaks

    [[pools]]                      # everything else
    concurrency = 64
"""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import msgspec

from palestra.errors import UsageError

__all__ = ["ClusterConfig", "Pool", "load_cluster_config"]

_Positive = Annotated[int, msgspec.Meta(ge=1)]


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Workers with the same resources."""

    match: str = "*"
    """Pattern of the ids of the environments that they play."""
    workers: _Positive | None = None
    """Number of workers; ``None`` for as many as fit, counted again during the run. Workers that do not fit wait for a node."""
    concurrency: _Positive = 64
    """Episodes that one worker plays at once: few for environments that compute, many for environments that wait."""
    cpus: Annotated[float, msgspec.Meta(ge=0.0)] = 1.0
    """CPUs that a worker reserves."""
    memory: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """Gigabytes of memory that a worker reserves."""
    resources: dict[str, float] = {}
    """Custom resources of Ray that a worker needs: ``{chromium = 1.0}``."""
    runtime_env: dict[str, Any] = {}
    """Ray's runtime environment: packages, variables, a working directory."""
    episodes_per_worker: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Episodes after which a worker's process is replaced; 0 for never."""
    patience: Annotated[float, msgspec.Meta(gt=0.0)] = 60.0
    """Seconds without an answer after which a worker counts as lost and is replaced."""


class ClusterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cluster and its pools."""

    address: str = "auto"
    """Address of Ray's head node; ``auto`` for the cluster that this machine is part of, or a new one here if there is none;
    ``local`` for a new one here."""
    pools: Annotated[tuple[Pool, ...], msgspec.Meta(min_length=1)] = (Pool(),)

    def pool_of(self, env: str) -> int:
        """The index of the pool that plays ``env``."""
        for number, pool in enumerate(self.pools):
            if fnmatchcase(env, pool.match):
                return number
        raise UsageError(f'no pool plays "{env}": the patterns are {[pool.match for pool in self.pools]}')


def load_cluster_config(path: Path) -> ClusterConfig:
    """Read the configuration from a TOML file."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), ClusterConfig)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} does not describe a cluster: {error}") from None
