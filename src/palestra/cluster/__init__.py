"""Many processes and machines: Ray places and restarts, whole episodes run in its workers, results come back in batches.

``crew`` holds the rules (leases, losses, back-pressure) and knows nothing of Ray; ``worker`` is what runs on the other side;
``fleet`` is where workers come from, this process or ``rays``. So the same code runs with and without Ray, and its rules are
tested without it. Importing this package imports neither Ray nor torch.
"""

from palestra.cluster.config import ClusterConfig, Pool, load_cluster_config
from palestra.cluster.crew import Crew
from palestra.cluster.fleet import Fleet, Hand, LocalFleet, Lost

__all__ = ["ClusterConfig", "Crew", "Fleet", "Hand", "LocalFleet", "Lost", "Pool", "load_cluster_config"]
