r"""Does it learn? Studies of the trainer on one CPU core, each a recipe, a few arms that differ in one thing, and seeds.

    python benchmarks/learning.py run guess --seeds 0 1 2          # train; one JSON file a run in docs/design/learning/guess
    python benchmarks/learning.py page                             # the tables of docs/design/learning.md, and its figures
    python benchmarks/learning.py --quick                          # seconds: does a warm-started tiny model improve at all

Every run is evaluated before and after on the same held-out tasks, by sampling as in training. Arms of one seed start from one
warm start and play the same training tasks, so that they are compared in pairs. A run that is there already is not made again.

Left out: GPUs, models above 135 M parameters, and any search for hyper-parameters on held-out tasks.
"""

import argparse
import asyncio
import fcntl
import json
import tempfile
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from rows import Row, finish

from palestra.evaluation.comparison import compare
from palestra.models import find_model
from palestra.plots.curves import Course, learning_curves
from palestra.registry import make
from palestra.rollout import rollout
from palestra.seeding import derive_seed
from palestra.statistics import Score, mean_interval
from palestra.training.assembly import assemble
from palestra.training.config import TrainConfig
from palestra.training.parts import register_variants
from palestra.training.recipe import load_recipe
from palestra.training.trainer import Trainer
from palestra.training.warm_start import warm_start
from palestra.trajectory import Task, Trajectory, text_of

Array = npt.NDArray[np.float64]

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "design" / "learning"
IMAGES = HERE.parent / "docs" / "images"
PAGE = HERE.parent / "docs" / "design" / "learning.md"
WORLDS = HERE.parent / "docs" / "results" / "worlds-training.md"
_USUAL = ("success", "turns", "reward", "entropy")
_PANELS = {"sums": ("success", "entropy"), "desk": ("reward", "turns", "entropy")}
_POINTS = 100
"""Of a curve in a figure; more would not be seen."""
CURVES = ("success", "turns", "reward", "format_errors", "entropy", "clipped", "kl_old", "gradient_norm", "tokens")


@dataclass(frozen=True)
class Study:
    """A recipe and its arms."""

    recipe: str
    arms: Mapping[str, tuple[str, ...]]
    """Name → overrides."""
    held_out: int
    """Tasks of an evaluation."""
    optimum: Mapping[str, float] = field(default_factory=dict)
    """What a perfect player comes to, where that is known."""
    pairs: tuple[tuple[str, str, str], ...] = ()
    """Arms to compare, and in what: (first, second, measure)."""
    by_observation: bool = False
    """Whether tasks with the same first observation are one and the same: there are fewer sums than held-out tasks."""
    page: Path = PAGE
    """The page that shows it."""


def binary_search(numbers: int, turns: int) -> dict[str, float]:
    """Success and mean turns of optimal search among ``numbers`` equally likely ones, in at most ``turns``.

    The k-th guess can settle 2^(k−1) of them; whoever is not found has used all turns.
    """
    left, spent, found = numbers, 0, 0
    for turn in range(1, turns + 1):
        here = min(2 ** (turn - 1), left)
        left, found, spent = left - here, found + here, spent + turn * here
    return {"success": found / numbers, "turns": (spent + turns * left) / numbers}


_METHODS = {
    "REINFORCE": ("advantage.method=reinforce",),
    "ReBN": ("advantage.method=rebn",),
    "GRPO": ("advantage.method=grpo",),
    # Its advantages are as small as differences of rewards are: others are divided by a standard deviation of about a fifth.
    "RLOO": ("advantage.method=rloo", "entropy.start=0.01"),
    "REINFORCE++": ("advantage.method=reinforce_pp",),
    # The limit of turns is a rule of this game: an episode that reaches it has no future.
    "PPO": ("advantage.method=ppo_turn", "model.critic=true", "advantage.bootstrap=false"),
}
_DISCOUNTS = {"γ = 0.9": ("advantage.discount=0.9",), "γ = 0.999": ("advantage.discount=0.999",)}
_HORIZONS = {
    "short": ('horizon.default={use="fixed",turns=6}',),
    "long": ('horizon.default={use="fixed",turns=24}',),
    "ScalingInter": ('horizon.default={use="stepwise",turns=[6,12,24],every=30}',),
}
_BY_DISCOUNT = (("γ = 0.9", "γ = 0.999", "turns"), ("γ = 0.9", "γ = 0.999", "success"))
_BY_HORIZON = (("ScalingInter", "long", "success"), ("ScalingInter", "short", "success"))
STUDIES = {
    "guess": Study("guess.toml", _METHODS, 500, binary_search(10, 4)),
    "discount": Study("guess20.toml", _DISCOUNTS, 500, binary_search(20, 7), _BY_DISCOUNT),
    "discount50": Study("guess50.toml", _DISCOUNTS, 500, binary_search(50, 7), _BY_DISCOUNT),
    "horizon": Study("maze.toml", _HORIZONS, 500, pairs=_BY_HORIZON),
    "sums": Study("sums.toml", {"GRPO": ()}, 256, {"success": 1.0}, by_observation=True),
    "guess_smollm2": Study("guess_smollm2.toml", {"ReBN": ()}, 256, binary_search(10, 4)),
    "craft": Study("craft.toml", {"REINFORCE": ()}, 300, page=WORLDS),
    "babyai": Study("babyai.toml", {"ReBN": ()}, 200, page=WORLDS),
    "desk": Study("desk.toml", {"REINFORCE": ()}, 50, page=WORLDS),
}


# ------------------------------------------------------------------------------------------------------------------ running


def run(name: str, arm: str, seed: int, scratch: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Train one arm with one seed; what it came to, and how it got there."""
    study = STUDIES[name]
    torch.set_num_threads(1)
    config = load_recipe(Path("cpu") / study.recipe, [f"seed={seed}", *study.arms[arm], *overrides])
    register_variants(config.variants)
    began = time.perf_counter()
    config = _from_shared_warm_start(config, scratch / f"{name}-{seed}-warm-start")
    warm = time.perf_counter() - began
    trainer = assemble(config, scratch / f"{name}-{arm}-{seed}", show=_show)
    spent = time.process_time()
    tasks = _held_out(config, study.held_out)
    before, after = asyncio.run(_measured(trainer, tasks))
    lines = (trainer.folder / "metrics.jsonl").read_bytes().splitlines()
    steps = [msgspec.json.decode(line) for line in lines]
    took = [sum(value for key, value in step.items() if key.startswith("seconds/")) for step in steps]
    return {
        "study": name,
        "arm": arm,
        "seed": seed,
        "seconds": round(sum(took), 1),
        "cpu_seconds": round(time.process_time() - spent, 1),
        "warm_start_seconds": round(warm, 1),
        "overrides": list(overrides),
        "asked": _asked(tasks) if study.by_observation else [],
        "before": before,
        "after": after,
        "curves": {key: [round(step[key], 4) for step in steps] for key in CURVES if key in steps[0]},
        "step_seconds": [round(seconds, 2) for seconds in took],
    }


def _from_shared_warm_start(config: TrainConfig, folder: Path) -> TrainConfig:
    if config.warm_start is None:
        return config
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:  # two studies may run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = warm_start(config, config.warm_start, str(find_model(config.model.path)), folder)
    model = msgspec.structs.replace(config.model, path=str(path))
    return msgspec.structs.replace(config, model=model, warm_start=None)


async def _measured(trainer: Trainer, tasks: Sequence[Task]) -> tuple[Any, Any]:
    """Evaluation, training, evaluation. A run that was stopped goes on, and has its first evaluation from its first life."""
    path = trainer.folder / "before.json"
    if not path.exists():
        path.write_text(json.dumps(await _evaluate(trainer, tasks)), encoding="utf-8")
    await trainer.train()
    return json.loads(path.read_text(encoding="utf-8")), await _evaluate(trainer, tasks)


def _asked(tasks: Sequence[Task]) -> list[str]:
    """What each task asks, where that is the whole of the task."""
    with make(tasks[0].env) as env:
        return [text_of(env.reset(task=task)[0]) for task in tasks]


def _held_out(config: TrainConfig, count: int) -> list[Task]:
    """Tasks that no step of any run plays: another split, under seeds of their own."""
    (env,) = config.envs
    return [Task(env, derive_seed(0, "held out", number), split="test") for number in range(count)]


async def _evaluate(trainer: Trainer, tasks: Sequence[Task]) -> dict[str, list[float]]:
    concurrency = trainer.config.play.concurrency
    played = [one async for one in rollout(tasks, trainer.policy, seed=1, concurrency=concurrency, deadline=600.0)]
    return _outcomes(sorted(played, key=lambda one: one.group))


def _outcomes(played: Sequence[Trajectory]) -> dict[str, list[float]]:
    if any(one.stop.failed for one in played):
        raise RuntimeError(f"an episode failed: {next(one.failures for one in played if one.stop.failed)}")
    return {
        "success": [float(bool(one.success)) for one in played],
        "turns": [len(one.turns) for one in played],
        "reward": [round(one.reward or 0.0, 4) for one in played],
    }


def _show(metrics: Mapping[str, Any]) -> None:
    if metrics["step"] % 10 == 0:
        shown = ("success", "turns", "reward", "entropy", "format_errors")
        numbers = (f"{name} {metrics[name]:.3f}" for name in shown if name in metrics)
        print(f"  step {metrics['step']:4}  {'  '.join(numbers)}", flush=True)


# ------------------------------------------------------------------------------------------------------------------ showing


def load(name: str) -> list[dict[str, Any]]:
    """All runs of a study, in the order of its arms."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((RESULTS / name).glob("*.json"))]
    order = list(STUDIES[name].arms)
    return sorted(runs, key=lambda one: (order.index(one["arm"]), one["seed"]))


def table(name: str) -> str:
    """One row a run: before and after on held-out tasks, with 95 % intervals over tasks, and the time it took."""
    lines = ["| arm | seed | success before | success after | paired difference | turns before | turns after | seconds |"]
    lines.append("|---" * 8 + "|")
    for one in load(name):
        tasks = one.get("asked") or list(range(len(one["after"]["success"])))
        before, after = one["before"], one["after"]
        cells = [
            one["arm"],
            one["seed"],
            _interval(tasks, before["success"]),
            _interval(tasks, after["success"]),
            _difference(tasks, after["success"], before["success"]),
            f"{np.mean(before['turns']):.2f}",
            f"{np.mean(after['turns']):.2f}",
            f"{one['seconds']:.0f}",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def summary(name: str) -> str:
    """One row an arm, seeds side by side."""
    lines = [
        "| arm | success before | success after, by seed | turns after, by seed | seconds (CPU), by seed |",
        "|---" * 5 + "|",
    ]
    for arm in STUDIES[name].arms:
        runs = [one for one in load(name) if one["arm"] == arm]
        if runs:
            before = np.mean([np.mean(one["before"]["success"]) for one in runs])
            success = " · ".join(f"{np.mean(one['after']['success']):.3f}" for one in runs)
            turns = " · ".join(f"{np.mean(one['after']['turns']):.2f}" for one in runs)
            seconds = " · ".join(f"{one['seconds']:.0f} ({one['cpu_seconds']:.0f})" for one in runs)
            lines.append(f"| {arm} | {before:.3f} | {success} | {turns} | {seconds} |")
    return "\n".join(lines)


def pairs(name: str, first: str, second: str, measure: str) -> str:
    """``first − second`` in ``measure`` after training: by seed, and over all tasks of all seeds (strata)."""
    runs = {(one["arm"], one["seed"]): one["after"][measure] for one in load(name)}
    seeds = sorted(seed for arm, seed in runs if arm == first and (second, seed) in runs)
    by_seed = [float(np.mean(runs[first, seed]) - np.mean(runs[second, seed])) for seed in seeds]
    scores = [[Score((str(s),), t, v) for s in seeds for t, v in enumerate(runs[arm, s])] for arm in (first, second)]
    most = max(max(values) for values in runs.values())
    found = compare(*scores, bounds=(0.0, float(most))).difference
    shown = ", ".join(f"{value:+.3f}" for value in by_seed)
    return f"{first} − {second}, {measure}: {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]; by seed {shown}"


def gain(name: str, arm: str) -> str:
    """After − before in reward, over all tasks of all seeds (strata)."""
    runs = [one for one in load(name) if one["arm"] == arm]
    scores = [
        [Score((str(one["seed"]),), task, value) for one in runs for task, value in enumerate(one[when]["reward"])]
        for when in ("after", "before")
    ]
    found = compare(*scores).difference
    return f"{arm}, after − before, mean reward (seeds: {len(runs)}): {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _scores(tasks: Sequence[Hashable], values: Sequence[float]) -> list[Score]:
    return [Score((), task, float(value)) for task, value in zip(tasks, values, strict=True)]


def _interval(tasks: Sequence[Hashable], values: Sequence[float]) -> str:
    found = mean_interval(_scores(tasks, values))
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _difference(tasks: Sequence[Hashable], first: Sequence[float], second: Sequence[float]) -> str:
    found = compare(_scores(tasks, first), _scores(tasks, second), bounds=(0.0, 1.0)).difference
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def write_page() -> None:
    """Put the tables of every study that has runs between its marks in the page, and draw its figure."""
    for page in (PAGE, WORLDS):
        page.write_text(_filled(page), encoding="utf-8")


def _filled(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    for name, study in STUDIES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if study.page != page or begin not in text or not load(name):
            continue
        present = {one["arm"] for one in load(name)}
        compared = [f"- {pairs(name, *pair)}" for pair in study.pairs if {*pair[:2]} <= present]
        picture = f"![Curves of {name} by step](../images/{figure(name, _PANELS.get(name, _USUAL)).name})"
        gains = [f"- {gain(name, arm)}" for arm in study.arms if study.page == WORLDS and arm in present]
        parts = [begin, _optimum(study), summary(name), table(name), "\n".join([*compared, *gains]), picture]
        head, _, rest = text.partition(begin)
        text = head + "\n\n".join(part for part in parts if part) + f"\n\n{end}" + rest.partition(end)[2]
    return text


def _optimum(study: Study) -> str:
    numbers = ", ".join(f"{name} {value:.2f}" for name, value in study.optimum.items())
    return f"A perfect player: {numbers}." if numbers else ""


def figure(name: str, curves: Sequence[str]) -> Path:
    """Every run of a study over its steps, smoothed a little: arms by colour, with the mean and the band of the seeds."""
    panels: dict[str, dict[str, list[Course]]] = {}
    for curve in curves:
        courses: dict[str, list[Course]] = {}
        for one in load(name):
            values = _smooth(one["curves"][curve])
            shown = np.arange(0, len(values), max(1, len(values) // _POINTS))
            courses.setdefault(one["arm"], []).append(Course(shown.astype(float), values[shown]))
        panels[curve] = courses
    path = IMAGES / f"learning-{name}.svg"
    path.write_text(learning_curves(panels), encoding="utf-8")
    return path


def _smooth(values: Sequence[float], window: int = 5) -> Array:
    padded = np.pad(np.asarray(values, dtype=np.float64), (window - 1, 0), mode="edge")
    return np.convolve(padded, np.ones(window) / window, mode="valid")


# -------------------------------------------------------------------------------------------------------------- the commands


def quick() -> None:
    """A few steps from a short warm start: the trend must be there."""
    with tempfile.TemporaryDirectory() as scratch:
        found = run("guess", "PPO", 0, Path(scratch), ("steps=12", "warm_start.episodes=1024"))
    rise = float(np.mean(found["after"]["reward"]) - np.mean(found["before"]["reward"]))
    finish([Row("reward after 12 steps, less that before", rise, ">= 0.02"), Row("seconds", found["seconds"], "")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("run", "page"))
    parser.add_argument("study", nargs="?", choices=STUDIES)
    parser.add_argument("overrides", nargs="*", help="such as steps=10, for trying out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", default=None)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "palestra-learning")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        quick()
    elif options.command == "page":
        write_page()
    else:
        _run_all(options)


def _run_all(options: argparse.Namespace) -> None:
    for seed in options.seeds:
        for arm in options.arms or STUDIES[options.study].arms:
            path = RESULTS / options.study / f"{arm.replace(' ', '')}-{seed}.json"
            if path.exists():
                continue
            print(f"{options.study}: {arm}, seed {seed}", flush=True)
            found = run(options.study, arm, seed, options.scratch, options.overrides)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
