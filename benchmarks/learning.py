r"""Does it learn? A few steps of the tiny model from a short warm start; the trend must be there.

    python benchmarks/learning.py            # about a minute
    python benchmarks/learning.py --quick    # the same

The studies with arms, seeds and intervals are in ``docs/results/studies``; ``palestra study`` runs them.

Left out: GPUs, models above 135 M parameters, and any search for hyper-parameters on held-out tasks.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

import numpy as np
from rows import Row, finish

from palestra.studies.running import run_cell
from palestra.studies.study import Cell, Study, StudyEnvironment

STUDY = Study(
    question="Does a warm-started tiny model improve at all?",
    environments={"guess": StudyEnvironment("cpu/guess", ("steps=12", "warm_start.episodes=1024"))},
    seeds=(0,),
    held_out=500,
    arms={"PPO": ("advantage.method=ppo_turn", "model.critic=true", "advantage.bootstrap=false")},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as loop:
        found = run_cell(Path(folder), STUDY, Cell("guess", "PPO", 0), Path(folder), print, loop)
    rise = float(np.mean(found.after["reward"]) - np.mean(found.before["reward"]))
    finish([Row("reward after 12 steps, less that before", rise, ">= 0.02"), Row("seconds", found.made.seconds, "")])


if __name__ == "__main__":
    main()
