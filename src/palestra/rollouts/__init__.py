"""Task + environment + policy → trajectory: the episode, the scheduler that runs many, the vector, and the file.

Async are ``rollout``, ``play``, ``play_episodes`` and ``run_episode``; ``collect`` and a ``VectorEnv`` block. A name is
imported when it is first used, so that whatever needs one of them does not load the others.
"""

from typing import TYPE_CHECKING

from palestra.foundation.imports import lazy_names

if TYPE_CHECKING:
    from palestra.rollouts.episode import EnvSupply, EpisodeKey, Players, Seating, run_episode
    from palestra.rollouts.groups import grouped, grouped_by_task
    from palestra.rollouts.keywords import EpisodeKeywords, PanelKeywords, RolloutKeywords, shows_keywords
    from palestra.rollouts.options import AnyPolicy, Book, EpisodeLimit, RolloutFunction, RolloutOptions
    from palestra.rollouts.scheduler import EpisodeRunner, episode_keys, play_episodes
    from palestra.rollouts.storage import TrajectoryWriter, read_trajectories
    from palestra.rollouts.supply import Envs, Supply
    from palestra.rollouts.vector import Autoreset, VectorEnv, VectorStep, make_vec
    from palestra.rollouts.verbs import collect, play, rollout

__all__ = [
    "AnyPolicy",
    "Autoreset",
    "Book",
    "EnvSupply",
    "Envs",
    "EpisodeKey",
    "EpisodeKeywords",
    "EpisodeLimit",
    "EpisodeRunner",
    "PanelKeywords",
    "Players",
    "RolloutFunction",
    "RolloutKeywords",
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
    "shows_keywords",
]

_HOMES = {
    "AnyPolicy": "options",
    "Autoreset": "vector",
    "Book": "options",
    "EnvSupply": "episode",
    "Envs": "supply",
    "EpisodeKey": "episode",
    "EpisodeKeywords": "keywords",
    "EpisodeLimit": "options",
    "EpisodeRunner": "scheduler",
    "PanelKeywords": "keywords",
    "Players": "episode",
    "Seating": "episode",
    "RolloutFunction": "options",
    "RolloutKeywords": "keywords",
    "RolloutOptions": "options",
    "Supply": "supply",
    "TrajectoryWriter": "storage",
    "VectorEnv": "vector",
    "VectorStep": "vector",
    "collect": "verbs",
    "episode_keys": "scheduler",
    "grouped": "groups",
    "grouped_by_task": "groups",
    "make_vec": "vector",
    "play": "verbs",
    "play_episodes": "scheduler",
    "read_trajectories": "storage",
    "rollout": "verbs",
    "run_episode": "episode",
    "shows_keywords": "keywords",
}

__getattr__ = lazy_names(__name__, _HOMES)
