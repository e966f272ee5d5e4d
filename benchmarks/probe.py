r"""Does the verdict of ``palestra probe`` agree with what training then shows?

    python benchmarks/probe.py            # about 15 minutes on one core
    python benchmarks/probe.py --quick    # three settings that need seconds each
    python benchmarks/probe.py --only 3 --save docs/results/probe.json    # one setting; the page of the probe shows this file
    python benchmarks/probe.py --saved docs/results/probe.json            # the rows of what was saved

Each setting is a model and an environment. The probe judges first, from episodes of the training tasks; then GRPO trains, and
the setting *was learnt* if the interval of the paired difference on held-out tasks, after less before, lies above 0. The
verdict ``yes`` agrees with that; ``no`` agrees with its opposite; ``unclear`` never agrees.

Left out: models above 0.2 million parameters, other learning rates than the recipes', and a second seed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from rows import Row, finish
from task_scores import play_tasks
from terminal_training import RECIPE as TERMINAL

from palestra.evaluation import Score, compare
from palestra.evaluation.learnability import Probe, ProbeAim
from palestra.evaluation.probing import probe_async
from palestra.foundation.seeding import derive_seed
from palestra.inference.models import find_model
from palestra.recipes.config import TrainConfig
from palestra.recipes.reading import resolve
from palestra.training.assembly import assemble
from palestra.training.parts import register_variants
from palestra.training.run import claimed
from palestra.training.trainer import Trainer
from palestra.training.warm_start import warm_start
from palestra.trajectory import Task

HELD_OUT = 400
LIGHTS = """
steps = 25
checkpoint_every = 25
samples = 1
[model]
path = "tiny:probe_lights:Lights"
[envs]
"probe_lights:Lights" = 1.0
[play]
tasks = 32
group_size = 8
concurrency = 256
max_tokens = 3
[engine]
batch = 256
rows = 256
[advantage]
method = "grpo"
[learner]
learning_rate = 1e-3
[warm_start]
teacher = "random"
episodes = 512
epochs = 4
minibatches = 16
learning_rate = 3e-3
"""


class Setting(NamedTuple):
    """A model and an environment, and whether the environment was written to be learnt."""

    name: str
    recipe: str
    """A shipped recipe, "lights", or "terminal"."""
    changes: tuple[str, ...]
    can: bool
    env: str = ""
    """What is played; by default what the recipe names, for which the model is warm-started."""


SETTINGS = (
    Setting("lights, model that moves at random", "lights", (), True),
    Setting("lights, model after 64 random moves", "lights", ("warm_start.episodes=64", "steps=40"), True),
    Setting("guess, model that guesses at random", "cpu/guess", ("steps=60", "advantage.method=grpo"), True),
    Setting("terminal, model that counts a random status", "terminal", (), True),
    Setting("lights, model taught by the oracle", "lights", ('warm_start.teacher="oracle"', "warm_start.epochs=12"), False),
    Setting("a move that the model cannot write", "lights", (), False, "probe_lights:UnknownMove"),
    Setting("every move pays", "lights", (), False, "probe_lights:PaysAlways"),
    Setting("a coin pays", "lights", (), False, "probe_lights:PaysByChance"),
    Setting("a hidden move pays", "lights", (), False, "probe_lights:HiddenMove"),
)
QUICK = (0, 5, 6)


class Outcome(NamedTuple):
    """What the probe said and what training showed."""

    name: str
    verdict: str
    reason: str
    gain: float
    low: float
    """The lower end of the interval of the gain."""
    seconds: float

    @property
    def learnt(self) -> bool:
        return self.low > 0.0

    @property
    def agrees(self) -> bool:
        return self.verdict == ("yes" if self.learnt else "no")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", type=int, help="the number of one setting")
    parser.add_argument("--save", type=Path, help="a file that gets the outcomes")
    parser.add_argument("--saved", type=Path, help="run nothing; print the rows of this file")
    options = parser.parse_args()
    if options.saved is not None:
        finish(rows(read(options.saved)))
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parent))
    chosen = QUICK if options.quick else range(len(SETTINGS)) if options.only is None else [options.only]
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for number in chosen:
            outcomes.append(measure(SETTINGS[number], Path(folder) / str(number)))
            print(line(outcomes[-1]), flush=True)
            if options.save is not None:
                save(options.save, outcomes[-1])
    finish(rows(outcomes))


def read(path: Path) -> list[Outcome]:
    """Return the outcomes of a file, in the order of the settings."""
    kept = json.loads(path.read_text()) if path.is_file() else {}
    return [Outcome(setting.name, **kept[setting.name]) for setting in SETTINGS if setting.name in kept]


def save(path: Path, outcome: Outcome) -> None:
    """Add an outcome to a file, in place of an older one of the same setting."""
    found = {one.name: one._asdict() for one in [*read(path), outcome]}
    kept = {name: {key: value for key, value in one.items() if key != "name"} for name, one in found.items()}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def line(found: Outcome) -> str:
    return (
        f"{found.name}: probe {found.verdict}, gain {found.gain:+.3f} (from {found.low:+.3f}), "
        f"{found.seconds:.0f} s; {found.reason}"
    )


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    agreed = sum(found.agrees for found in outcomes) / len(outcomes)
    made = [Row(f"agrees: {found.name}", float(found.agrees), "") for found in outcomes]
    kinds = [
        Row("settings that were learnt", float(sum(found.learnt for found in outcomes)), ">= 4"),
        Row("settings that were not", float(sum(not found.learnt for found in outcomes)), ">= 4"),
    ]
    return [*made, *(kinds if len(outcomes) == len(SETTINGS) else []), Row("share of verdicts that agree", agreed, ">= 0.875")]


def measure(setting: Setting, folder: Path) -> Outcome:
    """Probe, train, and compare the held-out tasks before and after."""
    began = time.perf_counter()
    config = _config(setting, folder)
    tasks = [Task(next(iter(config.envs)), derive_seed(0, "held out", number), split="test") for number in range(HELD_OUT)]
    with claimed(config, folder / "run"):
        trainer = assemble(config, folder / "run")
        try:
            probe, before, after = asyncio.run(_measured(trainer, tasks, folder))
        finally:
            trainer.ledger.close()
    values = [one.value for one in (*before, *after)]
    difference = compare(after, before, bounds=(min(0.0, *values), max(1.0, *values))).difference
    seconds = time.perf_counter() - began
    return Outcome(setting.name, probe.verdict, probe.reasons[0], difference.mean, difference.low, seconds)


def _config(setting: Setting, folder: Path) -> TrainConfig:
    """Return the recipe's configuration, with the model after its warm start."""
    folder.mkdir(parents=True)
    recipe = Path(setting.recipe)
    if setting.recipe in ("lights", "terminal"):
        recipe = folder / "recipe.toml"
        recipe.write_text(LIGHTS if setting.recipe == "lights" else TERMINAL)
    config = resolve(recipe, list(setting.changes))
    register_variants(config.variants)
    assert config.warm_start is not None
    taught = warm_start(config, config.warm_start, str(find_model(config.model.path)), folder / "warm")
    model = msgspec.structs.replace(config.model, path=str(taught))
    envs = {setting.env: 1.0} if setting.env else config.envs
    return msgspec.structs.replace(config, model=model, warm_start=None, envs=envs)


async def _measured(trainer: Trainer, tasks: Sequence[Task], folder: Path) -> tuple[Probe, list[Score], list[Score]]:
    play, env = trainer.config.play, next(iter(trainer.config.envs))
    try:
        probe = await probe_async(
            env,
            trainer.policy,
            out=folder / "probe",
            aim=ProbeAim(play.tasks, HELD_OUT),
            group_size=play.group_size,
            concurrency=play.concurrency,
        )
        before = await play_tasks(tasks, trainer.policy, play.concurrency)
        await trainer.train()
        return probe, before, await play_tasks(tasks, trainer.policy, play.concurrency)
    finally:
        await trainer.engine.close()


if __name__ == "__main__":
    main()
