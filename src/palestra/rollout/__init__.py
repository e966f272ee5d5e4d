"""Task + environment + policy → trajectory: the episode, the scheduler that runs many, the vector, and the file."""

from palestra.rollout.collecting import collect
from palestra.rollout.episode import EnvSupply, Players, Ticket, run_episode
from palestra.rollout.groups import grouped
from palestra.rollout.scheduler import AnyPolicy, Rollout, RolloutOptions, Stage, rollout, tickets_of
from palestra.rollout.storage import TrajectoryWriter, read_trajectories
from palestra.rollout.supply import Envs, Supply
from palestra.rollout.vector import Autoreset, VectorEnv, VectorStep, make_vec

__all__ = [
    "AnyPolicy",
    "Autoreset",
    "EnvSupply",
    "Envs",
    "Players",
    "Rollout",
    "RolloutOptions",
    "Stage",
    "Supply",
    "Ticket",
    "TrajectoryWriter",
    "VectorEnv",
    "VectorStep",
    "collect",
    "grouped",
    "make_vec",
    "read_trajectories",
    "rollout",
    "run_episode",
    "tickets_of",
]
