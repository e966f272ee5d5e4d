"""Rollouts and training on many processes and machines. Ray places and restarts workers; each plays whole episodes.

``dispatcher`` holds the rules (leases, losses, back-pressure) and does not depend on Ray. ``worker`` runs in the worker
processes. ``providers`` starts workers: in this process, or with ``rays``. So the same code runs with and without Ray, and its
rules are tested without Ray. Importing this package imports neither Ray nor torch.
"""

from palestra.cluster.config import ClusterConfig, Pool, load_cluster_config
from palestra.cluster.dispatcher import Dispatcher
from palestra.cluster.providers import LocalProvider, Lost, WorkerHandle, WorkerProvider

__all__ = [
    "ClusterConfig",
    "Dispatcher",
    "LocalProvider",
    "Lost",
    "Pool",
    "WorkerHandle",
    "WorkerProvider",
    "load_cluster_config",
]
