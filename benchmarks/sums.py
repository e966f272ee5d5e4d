r"""Seconds per step and peak memory of SmolLM2-135M on sums, beside an earlier version of the code.

    python benchmarks/sums.py --quick              # two small steps of this version; under a minute
    python benchmarks/sums.py                      # 20 steps in bfloat16
    git worktree add --detach ../before d2ed552
    python benchmarks/sums.py --beside ../before   # 20 steps with 3 seeds of both versions, in turns; about half an hour

Every run is ``palestra train`` with the recipe ``cpu/sums`` of its own version, in a process of its own, with one thread.
The ratio is the median of the ratios of the seeds; the order changes from seed to seed. The seconds of a step are CPU
seconds, without the loading of the model: the time on the clock depends on what else the machine does. What both versions
have learned is compared by the mean success of the last five steps. Arguments KEY=VALUE change the recipe for both versions.

The recipe computes in float32, which is exact and fast on every CPU. The limit on memory is for bfloat16. On a CPU without
instructions for it, torch computes in bfloat16 up to four times as slowly as in float32, so ``--quick`` keeps to the recipe.

Left out: GPUs.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from rows import Row, finish

HERE = Path(__file__).resolve().parents[1]
COMMAND = "import sys; from palestra.cli import main; sys.exit(main())"  # the entry that all versions have
BFLOAT16 = ["model.compute=bfloat16", "engine.dtype=bfloat16"]


class Run(NamedTuple):
    """What one run took, and what it learned."""

    seconds: float
    """CPU seconds per step: the mean without the first one, which warms up."""
    gigabytes: float
    success: float
    """The mean of the last five steps."""
    episodes: int
    """Episodes of these steps."""


def recipe_of(tree: Path) -> Path:
    """Return the recipe in ``tree``; the first versions kept it in another folder."""
    places = [tree / "src/palestra/recipes/files/cpu/sums.toml", tree / "recipes/cpu/sums.toml"]
    return next(place for place in places if place.exists())


def train(tree: Path, overrides: list[str], folder: Path) -> Run:
    """Train with the code of ``tree``."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command: list[str | Path] = [sys.executable, "-c", COMMAND, "train", recipe_of(tree), *overrides]
    process = subprocess.Popen([*command, "--no-check", "--out", folder], env=environment, stdout=subprocess.DEVNULL)
    metrics = folder / "metrics.jsonl"
    spent: list[float] = []
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") > len(spent):
            spent.append(cpu_seconds(process.pid))
        time.sleep(0.05)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"palestra train of {tree} ended with {process.returncode}")
    last = [json.loads(line) for line in metrics.read_text().splitlines()][-5:]
    success, episodes = mean(line["success"] for line in last), sum(line["episodes"] for line in last)
    return Run((spent[-1] - spent[0]) / (len(spent) - 1), usage.ru_maxrss / 1024**2, success, episodes)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="a checkout of the version to compare with")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    asked = parser.parse_args()
    if asked.quick and asked.beside:
        parser.error("--quick measures this version alone: leave --beside out")
    with tempfile.TemporaryDirectory() as scratch:
        if asked.quick or asked.beside is None:
            settings = ["steps=2", "play.tasks=1"] if asked.quick else BFLOAT16
            ours = train(HERE, [*settings, *asked.overrides], Path(scratch, "ours"))
            limit = "" if asked.quick else "<= 7"
            finish([Row("peak memory, GB", ours.gigabytes, limit), Row("CPU seconds per step", ours.seconds, "")])
        trees = {"before": asked.beside.resolve(), "ours": HERE}
        runs: dict[str, list[Run]] = {name: [] for name in trees}
        for seed in range(asked.seeds):
            for name in sorted(trees, reverse=seed % 2 == 1):
                settings = [f"seed={seed}", *BFLOAT16, *asked.overrides]
                runs[name].append(train(trees[name], settings, Path(scratch, f"{name}-{seed}")))
                print(f"seed {seed}, {name}: {runs[name][-1]}", flush=True)
    ratios = [ours.seconds / before.seconds for ours, before in zip(runs["ours"], runs["before"], strict=True)]
    rows = [
        Row("CPU seconds per step over those before", median(ratios), "<= 0.85"),
        Row("peak memory, GB", max(run.gigabytes for run in runs["ours"]), "" if asked.overrides else "<= 7"),
        Row("peak memory before, GB", max(run.gigabytes for run in runs["before"]), ""),
    ]
    gain = mean(ours.success - before.success for ours, before in zip(runs["ours"], runs["before"], strict=True))
    variance = sum(run.success * (1 - run.success) / run.episodes for those in runs.values() for run in those)
    half = 1.96 * math.sqrt(variance) / asked.seeds
    rows += [
        Row("success of the last steps, ours less before, mean of the seeds", gain, ""),
        Row("the upper end of its 95 % interval over episodes", gain + half, ">= 0"),
    ]
    for name, those in runs.items():
        rows += [Row(f"success of the last steps, {name}, seed {seed}", run.success, "") for seed, run in enumerate(those)]
    finish(rows)


if __name__ == "__main__":
    main()
