"""Task + environment + policy → trajectory: the episode, the scheduler that runs many, the vector, and the file."""

from palestra.rollout.collecting import collect
from palestra.rollout.episode import EnvSupply, EpisodeKey, Players, run_episode
from palestra.rollout.groups import grouped
from palestra.rollout.options import AnyPolicy, Book, RolloutFunction, RolloutOptions
from palestra.rollout.playing import play
from palestra.rollout.scheduler import EpisodeRunner, episode_keys, play_episodes, rollout
from palestra.rollout.storage import TrajectoryWriter, read_trajectories
from palestra.rollout.supply import Envs, Supply
from palestra.rollout.vector import Autoreset, VectorEnv, VectorStep, make_vec

__all__ = [
    "AnyPolicy",
    "Autoreset",
    "Book",
    "EnvSupply",
    "Envs",
    "EpisodeKey",
    "EpisodeRunner",
    "Players",
    "RolloutFunction",
    "RolloutOptions",
    "Supply",
    "TrajectoryWriter",
    "VectorEnv",
    "VectorStep",
    "collect",
    "episode_keys",
    "grouped",
    "make_vec",
    "play",
    "play_episodes",
    "read_trajectories",
    "rollout",
    "run_episode",
]
