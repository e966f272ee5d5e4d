"""Task + environment + policy → trajectory: the episode, the scheduler that runs many, the vector, and the file.

A name is imported when it is first used: every ``import palestra`` passes here, and an environment needs none of them.
"""

from typing import TYPE_CHECKING

from palestra.foundation.laziness import lazy_names
from palestra.rollouts.streaming import rollout

if TYPE_CHECKING:
    from palestra.rollouts.collecting import collect
    from palestra.rollouts.episode import EnvSupply, EpisodeKey, Players, Seating, run_episode
    from palestra.rollouts.groups import grouped, grouped_by_task
    from palestra.rollouts.options import AnyPolicy, Book, Places, RolloutFunction, RolloutOptions
    from palestra.rollouts.playing import play
    from palestra.rollouts.scheduler import EpisodeRunner, episode_keys, play_episodes
    from palestra.rollouts.storage import TrajectoryWriter, read_trajectories
    from palestra.rollouts.supply import Envs, Supply
    from palestra.rollouts.vector import Autoreset, VectorEnv, VectorStep, make_vec

__all__ = [
    "AnyPolicy",
    "Autoreset",
    "Book",
    "EnvSupply",
    "Envs",
    "EpisodeKey",
    "EpisodeRunner",
    "Places",
    "Players",
    "RolloutFunction",
    "RolloutOptions",
    "Seating",
    "Supply",
    "TrajectoryWriter",
    "VectorEnv",
    "VectorStep",
    "collect",
    "episode_keys",
    "grouped",
    "grouped_by_task",
    "make_vec",
    "play",
    "play_episodes",
    "read_trajectories",
    "rollout",
    "run_episode",
]

_HOMES = {
    "AnyPolicy": "options",
    "Autoreset": "vector",
    "Book": "options",
    "EnvSupply": "episode",
    "Envs": "supply",
    "EpisodeKey": "episode",
    "EpisodeRunner": "scheduler",
    "Places": "options",
    "Players": "episode",
    "Seating": "episode",
    "RolloutFunction": "options",
    "RolloutOptions": "options",
    "Supply": "supply",
    "TrajectoryWriter": "storage",
    "VectorEnv": "vector",
    "VectorStep": "vector",
    "collect": "collecting",
    "episode_keys": "scheduler",
    "grouped": "groups",
    "grouped_by_task": "groups",
    "make_vec": "vector",
    "play": "playing",
    "play_episodes": "scheduler",
    "read_trajectories": "storage",
    "run_episode": "episode",
}

__getattr__ = lazy_names(__name__, _HOMES)
