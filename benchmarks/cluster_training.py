r"""Training on Ray against training in one process: the same score, and with a worker killed every 20 seconds still the same.

    python benchmarks/cluster_training.py             # about half an hour on two cores
    python benchmarks/cluster_training.py --quick     # under 50 s: two steps, which teach nothing; shows that it runs
    python benchmarks/cluster_training.py --folder DIR --only local; … --only ray; … --only killed     # in pieces

A tiny model learns to guess a number from 1 to 10, asynchronously (staleness 1): in this process, then with a learner, two
rollout workers and an inference replica that Ray placed, then again while somebody kills rollout workers. Each is scored on the
same held-out tasks. The interval is that of the difference of two shares of successes; what two seeds differ by is not in
it, so the method is the one whose seeds differ least in one process (docs/design/learning.md).
"""

import argparse
import asyncio
import math
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)

from rows import Row, finish  # noqa: E402
from tests.cluster.learning import learning, train_under_fire  # noqa: E402

from palestra.cluster.learner import train_on_cluster  # noqa: E402
from palestra.cluster.rays import connect  # noqa: E402
from palestra.durable.ledger import Ledger  # noqa: E402
from palestra.recipes.config import TrainConfig  # noqa: E402
from palestra.recipes.reading import resolve  # noqa: E402
from palestra.rollouts import rollout  # noqa: E402
from palestra.training.assembly import assemble  # noqa: E402


def recipe(steps: int) -> TrainConfig:
    """The recipe of the learning curves, asynchronous, and with checkpoints to go on from."""
    wanted = [
        f"steps={steps}",
        "advantage.method=reinforce_pp",
        "staleness=1",
        f"checkpoint_every={max(1, steps // 14)}",
        f"entropy.steps={max(1, steps * 4 // 5)}",
        f"learner.decay=[{6 * steps},{12 * steps}]",
    ]
    return resolve(Path("cpu/guess"), wanted)


async def score(config: TrainConfig, folder: Path, tasks: int) -> float:
    """The share of held-out tasks that the last checkpoint solves."""
    trainer = assemble(config, folder)
    first, _ = trainer._resume()
    assert first == config.steps, f"the run ended at step {first}"
    await trainer._publish(first)
    each = tasks // len(config.envs)
    played = [one async for one in rollout(list(config.envs), trainer.policy, n=each, seed=12345, concurrency=256)]
    assert all(not one.stop.failed for one in played)
    return sum(bool(one.success) for one in played) / len(played)


def audited(folder: Path) -> bool:
    with Ledger(folder / "ledger") as ledger:
        return ledger.audit().balanced


def local(config: TrainConfig, folder: Path) -> int:
    trainer = assemble(config, folder)
    asyncio.run(trainer.train())
    return 0


def on_ray(config: TrainConfig, folder: Path) -> int:
    asyncio.run(train_on_cluster(learning(config, folder)))
    return 0


def under_fire(config: TrainConfig, folder: Path) -> int:
    return asyncio.run(train_under_fire(learning(config, folder), 20.0, ("RayWorker",)))[0]


RUNS = {"local": local, "ray": on_ray, "killed": under_fire}


def run(name: str, config: TrainConfig, folder: Path, tasks: int) -> list[Row]:
    """Train, score, and write the score beside the run, for the others to be compared with."""
    own = folder / name
    if name != "local":
        own.mkdir(exist_ok=True)
        if not (own / "warm-start").exists():
            (own / "warm-start").symlink_to(folder / "local" / "warm-start")  # from the same beginning
        connect("local", num_cpus=4)
    began = time.perf_counter()
    kills = RUNS[name](config, own)
    reached = asyncio.run(score(config, own, tasks))
    (own / "score").write_text(repr(reached))
    print(f"{name}: {reached:.3f} after {time.perf_counter() - began:.0f} s, {kills} kills", flush=True)
    rows = [Row(f"{name}: score", reached, ""), Row(f"{name}: the ledger does not add up", float(not audited(own)), "<= 0")]
    if name == "killed":
        rows.append(Row("killed: kills, one every 20 s", kills, ">= 1"))
    if name != "local" and config.steps > 2:
        beside = float((folder / "local" / "score").read_text())
        width = 1.96 * math.sqrt(max(reached * (1 - reached) + beside * (1 - beside), 1e-9) / tasks)
        off = abs(reached - beside) / max(width, 2 / tasks)
        rows.append(Row(f"{name}: off from local, in half-widths of the 95 % interval of the difference", off, "<= 1"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two steps: shows that it runs")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="keep the runs here")
    parser.add_argument("--only", choices=RUNS, help="only this one")
    options = parser.parse_args()
    steps, tasks = (2, 100) if options.quick else (options.steps, 1000)
    chosen = [options.only] if options.only else ["local", "ray"] if options.quick else list(RUNS)
    with tempfile.TemporaryDirectory() as place:
        folder = options.folder or Path(place)
        finish([row for name in chosen for row in run(name, recipe(steps), folder, tasks)])


if __name__ == "__main__":
    main()
