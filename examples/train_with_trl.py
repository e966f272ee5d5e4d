# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[train]", "trl==1.16.0", "datasets"]
# ///
"""Train a tiny model on game:GuessTheNumber-v0-easy with TRL's GRPOTrainer, on one CPU core.

    uv run --find-links dist examples/train_with_trl.py      (python -m build makes dist/*.whl, until there is a release)

The model first imitates random moves for some seconds, as `palestra train cpu/guess` does: it can then write a move, but not
search. The texts of the game are shortened, so that a vocabulary of a few dozen phrases is enough. To train a model of your own
on the game as it is, pass --model FOLDER.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
import transformers
import trl
from datasets import Dataset

import palestra
from palestra.bridges.trl import reward, rollout_func, task_rows
from palestra.core import Sampling
from palestra.evaluation import Estimate, compare, episode_of, task_scores
from palestra.inference.engines.hf import HFEngine
from palestra.inference.rendering import renderer_for
from palestra.recipes.reading import resolve
from palestra.training.assembly import first_model

GAME = "game:GuessTheNumber-v0-easy"
BRIEF = "game:GuessTheNumber-v0-brief10"  # the same game with shorter texts: a variant in the recipe cpu/guess


def warm_model(folder: Path, seed: int) -> str:
    """Build a tiny model that can write moves, and register the game with shorter texts."""
    return first_model(resolve("cpu/guess", [f"seed={seed}"]), folder)


def train(env: str, folder: str, *, steps: int, seed: int, max_tokens: int, out: str) -> trl.GRPOTrainer:
    """Train with GRPO on ``env`` and return the trainer."""
    settings = trl.GRPOConfig(
        output_dir=out,
        max_steps=steps,
        seed=seed,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        per_device_train_batch_size=64,
        steps_per_generation=4,  # 256 episodes are played, and then used for 12 steps
        num_iterations=3,
        num_generations=8,
        beta=0.0,
        bf16=False,  # with bf16, the log-probs of sampling and of training differ
        use_cpu=not torch.cuda.is_available(),
        logging_steps=24,
        save_strategy="no",
        report_to=[],
    )
    trainer = trl.GRPOTrainer(
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(task_rows(palestra.Task(env, number) for number in range(4096))),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder),
        rollout_func=rollout_func(max_tokens=max_tokens),
    )
    trainer.train()
    return trainer


def play(env: str, model: object, tokenizer: object, max_tokens: int, n: int = 500) -> list[palestra.Trajectory]:
    """Play ``n`` tasks that training does not use."""
    policy = palestra.SampledPolicy(renderer_for(tokenizer), HFEngine(model, batch=128), Sampling(max_tokens=max_tokens))
    tasks = [palestra.Task(env, number, split="test") for number in range(n)]
    return palestra.collect(tasks, policy, concurrency=128, progress=False)


def main(words: list[str] | None = None) -> Estimate:
    """Play, train, play again, and print the difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder; by default a tiny model is built")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(words)
    began, scratch = time.perf_counter(), Path(tempfile.mkdtemp())
    env, max_tokens = (GAME, 256) if options.model else (BRIEF, 3)
    folder = options.model or warm_model(scratch, options.seed)
    trainer = train(env, folder, steps=options.steps, seed=options.seed, max_tokens=max_tokens, out=str(scratch / "trl"))
    models = trainer.accelerator.unwrap_model(trainer.model), transformers.AutoModelForCausalLM.from_pretrained(folder)
    played = [play(env, model, trainer.processing_class, max_tokens) for model in models]
    scores = [task_scores(map(episode_of, episodes)) for episodes in played]
    gain = compare(*scores, bounds=(-0.1, 1.0)).difference
    print(f"reward: {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] in {time.perf_counter() - began:.0f} s")
    return gain


if __name__ == "__main__":
    main()
