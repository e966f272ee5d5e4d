# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[train]"]
# ///
"""Train a tiny model on questions of your own, on one CPU core: ``uv run --find-links dist examples/own_questions.py``.

The questions are lines of a JSONL file. A grader compares the reply with the answer. For a model of your own, replace
``tiny:…`` by its folder; ``palestra model export RUN`` writes the trained model.
"""

import argparse
import json
from pathlib import Path

import msgspec

import palestra
from palestra.training import TrainConfig, train
from palestra.training.record import read_metrics

FILE = Path("questions.jsonl")
QUESTIONS = f"data:{FILE}?grader=number&instruction="


def recipe(steps: int) -> TrainConfig:
    """A model that first imitates the answers for some seconds, and then learns from the rewards of its own replies."""
    settings = {
        "model": {"path": f"tiny:{QUESTIONS}"},
        "envs": {QUESTIONS: 1.0},
        "steps": steps,
        "warm_start": {"teacher": "oracle", "episodes": 200},
        "play": {"tasks": 16, "group_size": 8, "max_tokens": 8},
        "learner": {"learning_rate": 1e-3},
    }
    return msgspec.convert(settings, TrainConfig)


def main() -> None:
    """Write the file, evaluate a constant answer, and train."""
    parser = argparse.ArgumentParser(description="Train a tiny model on questions of your own.")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--run", default="runs/questions", help="the folder of the run")
    arguments = parser.parse_args()
    rows = [{"question": f"{a} + {b} = ?", "answer": a + b} for a in range(5) for b in range(5)]
    FILE.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = palestra.evaluate(QUESTIONS, lambda text: "\\boxed{4}", n=len(rows))
    print(f"always 4: {report.suite.score.mean:.2f}")
    train(recipe(arguments.steps), arguments.run, show=lambda metrics: print(metrics["step"], metrics["reward"]))
    rewards = [line["reward"] for line in read_metrics(arguments.run)]
    few = max(len(rewards) // 6, 1)
    first, last = sum(rewards[:few]) / few, sum(rewards[-few:]) / few
    print(f"mean reward of the sampled replies: {first:.2f} in the first {few} steps, {last:.2f} in the last {few}")


if __name__ == "__main__":
    main()
