import statistics
import tempfile
from pathlib import Path

import palestra
from palestra.rollouts import TrajectoryWriter, read_trajectories

trajectories = palestra.collect("game:Mastermind-v0-easy", "oracle", n=20, seed=1)
print(statistics.fmean(one.reward for one in trajectories if one.reward is not None))

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "trajectories.jsonl"
    with TrajectoryWriter(path) as writer:
        for trajectory in trajectories:
            writer.write(trajectory)
    assert [one.digest() for one in read_trajectories(path)] == [one.digest() for one in trajectories]
