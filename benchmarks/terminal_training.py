r"""A tiny model learns an easy terminal family on a CPU: one command per episode, in a real shell, judged by the grader.

    python benchmarks/terminal_training.py            # three seeds, about 2,900 episodes each
    python benchmarks/terminal_training.py --seed 1   # one of them
    python benchmarks/terminal_training.py --quick    # four steps: it runs, and learns nothing yet

The family is ``logs`` at its easy level: how many requests of a log were answered with a status? The model writes one of the
commands that count a status, and has to learn which one the question asks for. Before training it has seen commands for random
statuses only. The row is the lower end of the interval of the gain on held-out tasks.

Left out: the search for the command itself, for which a model of this size is too small.
"""

import argparse
import asyncio
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import torch
from rows import Row, cpu_minutes, finish
from task_scores import play_tasks

from palestra.core import Env, Step
from palestra.evaluation import Score, compare
from palestra.foundation.seeding import derive_seed
from palestra.inference.models import find_model
from palestra.recipes.config import TrainConfig
from palestra.recipes.reading import resolve
from palestra.training.assembly import assemble
from palestra.training.run import claimed
from palestra.training.trainer import Trainer
from palestra.training.warm_start import warm_start
from palestra.trajectory import Task
from palestra.worlds.terminal.env import Terminal

ENV = "terminal_training:CountStatus"
STATUSES = (200, 301, 404, 500, 503)
SEEDS = (0, 1, 2)
HELD_OUT = 200
RECIPE = f"""
steps = 20
checkpoint_every = 20
samples = 1
[model]
path = "tiny:terminal_training:Texts"
[envs]
"{ENV}" = 1.0
[play]
tasks = 16
group_size = 8
concurrency = 16
max_tokens = 8
[engine]
batch = 128
rows = 128
[advantage]
method = "grpo"
[learner]
learning_rate = 3e-3
[warm_start]
teacher = "random"
episodes = 96
epochs = 8
minibatches = 4
learning_rate = 3e-3
"""


def _command(status: int) -> str:
    return f"```bash\nawk '$9=={status}' access.log | wc -l > answer.txt\n```"


class Texts(Env):
    """The texts of ``CountStatus`` without a shell, for the vocabulary of the tiny model, which takes hundreds of episodes."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self._status = STATUSES[int(self.rng.integers(len(STATUSES)))]
        return f"Count status {self._status}", {}

    def step(self, action: str) -> Step:
        return Step("[no output]", 0.0, True, False, {})

    def oracle(self) -> str:
        return _command(self._status)

    def sample_random_action(self) -> str:
        return _command(STATUSES[int(self.action_rng.integers(len(STATUSES)))])


class CountStatus(Terminal):
    """``terminal:logs-v0-easy`` with a short question, one turn, and random actions that count a random status."""

    def __init__(self) -> None:
        super().__init__("logs", "easy", max_turns=1)

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        text, info = await super().reset(seed=seed, task=task)
        found = re.search(r"with status (\d+)\?", text)
        assert found is not None, text
        self._status = int(found[1])
        return f"Count status {self._status}", info

    async def oracle(self) -> str:
        return _command(self._status)

    async def sample_random_action(self) -> str:
        return _command(STATUSES[int(self.action_rng.integers(len(STATUSES)))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, help="only this seed, instead of 0, 1 and 2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parent))
    seeds = [0] if options.quick else SEEDS if options.seed is None else [options.seed]
    rows = []
    for seed in seeds:
        rows += rows_of(seed, options.quick)
        print(rows[-5:], flush=True)  # a seed takes minutes
    finish(rows)


def rows_of(seed: int, quick: bool) -> list[Row]:
    changes, held_out = (["steps=4", "play.tasks=4"], 16) if quick else ([], HELD_OUT)
    used = cpu_minutes()
    with tempfile.TemporaryDirectory() as folder:
        before, after = measure(Path(folder), [*changes, f"seed={seed}"], held_out)
    difference = compare(after, before).difference
    return [
        Row(f"seed {seed}: success before training", sum(one.value for one in before) / len(before), ""),
        Row(f"seed {seed}: success after training", sum(one.value for one in after) / len(after), ""),
        Row(f"seed {seed}: gain on held-out tasks", difference.mean, ""),
        Row(f"seed {seed}: gain on held-out tasks, lower end of the interval", difference.low, "" if quick else ">= 0"),
        Row(f"seed {seed}: CPU minutes, boxes included", cpu_minutes() - used, ""),
    ]


def measure(folder: Path, changes: list[str], held_out: int) -> tuple[list[Score], list[Score]]:
    """Return the scores on held-out tasks before and after training."""
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE)
    config: TrainConfig = resolve(recipe, changes)
    assert config.warm_start is not None
    taught = warm_start(config, config.warm_start, str(find_model(config.model.path)), folder / "warm")
    config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, path=str(taught)), warm_start=None)
    tasks = [Task(ENV, derive_seed(0, "held out", number), split="test") for number in range(held_out)]
    with claimed(config, folder / "run"):
        trainer = assemble(config, folder / "run")
        try:
            return asyncio.run(_measured(trainer, tasks))
        finally:
            trainer.ledger.close()


async def _measured(trainer: Trainer, tasks: list[Task]) -> tuple[list[Score], list[Score]]:
    concurrency = trainer.config.play.concurrency
    try:
        before = await play_tasks(tasks, trainer.policy, concurrency)
        await trainer.train()
        return before, await play_tasks(tasks, trainer.policy, concurrency)
    finally:
        await trainer.engine.close()


if __name__ == "__main__":
    main()
