import json
from pathlib import Path

import msgspec

from palestra.training import TrainConfig, train
from palestra.training.record import read_metrics

rows = [{"question": f"{a} + {b} = ?", "answer": a + b} for a in range(5) for b in range(5)]
Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

questions = "data:questions.jsonl?grader=number&instruction="
recipe = {
    "model": {"path": f"tiny:{questions}"},
    "envs": {questions: 1.0},
    "steps": 30,
    "warm_start": {"teacher": "oracle", "episodes": 200},
    "play": {"tasks": 16, "group_size": 8, "max_tokens": 8},
    "learner": {"learning_rate": 1e-3},
}
train(msgspec.convert(recipe, TrainConfig), "runs/questions", show=lambda metrics: print(metrics["step"], metrics["reward"]))

rewards = [line["reward"] for line in read_metrics("runs/questions")]
first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
print(f"mean reward of the sampled replies: {first:.2f} in the first five steps, {last:.2f} in the last five")
