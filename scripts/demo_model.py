r"""Train, measure and pack the tiny model of ``palestra demo``.

    python scripts/demo_model.py --run runs/demo               # train cpu/demo (or resume it), measure, pack
    python scripts/demo_model.py --run runs/demo --no-train    # measure and pack a run that is finished

It writes ``src/palestra/inference/models/demo.npz``. The packed model, with its weights rounded to float16, is what is
measured: 200 tasks per game from a seed that training does not use. The games are small: GuessTheNumber has 10 tasks and
TowerofHanoi one, so these scores say how well the model plays, not how well it generalises.
"""

import argparse
import asyncio
import datetime
import tempfile
from pathlib import Path

import msgspec

from palestra.cli import main as palestra
from palestra.cli.demo import GAMES
from palestra.core import Sampling
from palestra.foundation.statistics import Score, mean_interval
from palestra.inference.models.packed import load_packed, pack_model
from palestra.policies.sampled import SampledPolicy
from palestra.recipes.reading import resolve
from palestra.rollouts import rollout
from palestra.training.export import export_model

TARGET = Path(__file__).parents[1] / "src/palestra/inference/models/demo.npz"
LARGEST = 500_000
TASKS = 200
SEED = 2026


def main() -> None:
    """Train, measure and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="Folder of the training run.")
    parser.add_argument("--no-train", action="store_true", help="The run is finished.")
    options = parser.parse_args()
    if not options.no_train and palestra(["train", "cpu/demo", "-o", str(options.run)]):
        raise SystemExit("training ended early: run the same command again")
    with tempfile.TemporaryDirectory() as scratch:
        folder = export_model(options.run, Path(scratch) / "model")
        pack_model(folder, TARGET, {})
        scores = asyncio.run(measure(TARGET))
        made = {
            "recipe": "cpu/demo",
            "seed": resolve(Path("cpu/demo"), []).seed,
            "steps": sum(1 for _ in (options.run / "metrics.jsonl").open()),
            "made": "the whole recipe",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "measured": f"{TASKS} tasks per game, seed {SEED}, greedy",
            "scores": scores,
        }
        pack_model(folder, TARGET, made)
    if TARGET.stat().st_size > LARGEST:
        raise SystemExit(f"{TARGET} has {TARGET.stat().st_size:,} bytes; the wheel has room for {LARGEST:,}")
    print(msgspec.json.format(msgspec.json.encode({**made, "bytes": TARGET.stat().st_size})).decode())


async def measure(file: Path) -> dict[str, list[float]]:
    """Mean reward per game, and its 95 % interval."""
    model = load_packed(file)
    policy = SampledPolicy(model.renderer, model.engine, Sampling(max_tokens=10, temperature=0.0))
    rewards: dict[str, list[Score]] = {game: [] for game in GAMES}
    async for one in rollout(GAMES, policy, n=TASKS, seed=SEED):
        if one.reward is None:
            raise SystemExit(f"an episode failed: {one.failures}")
        rewards[one.task.env].append(Score((), one.task, one.reward))
    found = {game: mean_interval(scores, bounds=(-0.1, 1.0)) for game, scores in rewards.items()}
    return {game: [round(number, 3) for number in (one.mean, one.low, one.high)] for game, one in found.items()}


if __name__ == "__main__":
    main()
