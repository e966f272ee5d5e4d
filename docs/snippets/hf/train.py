import msgspec

from palestra.training import TrainConfig, train
from palestra.training.record import read_metrics

recipe = {
    "model": {"path": "tiny:game:GuessTheNumber-v0-easy"},
    "envs": {"game:GuessTheNumber-v0-easy": 1.0},
    "steps": 2,
    "warm_start": {"teacher": "random", "episodes": 64},
    "play": {"tasks": 4, "group_size": 4, "max_tokens": 8},
    "advantage": {"method": "rebn", "discount": 0.9},
    "learner": {"learning_rate": 5e-4},
}
train(msgspec.convert(recipe, TrainConfig), "runs/first", show=lambda metrics: print(metrics["step"], metrics["reward"]))

tokens = sum(line["tokens"] for line in read_metrics("runs/first"))
print(f"{tokens} tokens were sampled and learned from")
