# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[render]", "skyrl-gym==0.4.0"]
# ///
"""Train with SkyRL on a game of Palestra.

Training needs GPUs and Python 3.12. Options of SkyRL follow as KEY=VALUE::

    uv run --find-links dist --with "skyrl[fsdp]==0.4.0" examples/train_with_skyrl.py trainer.policy.model.path=MODEL

``--smoke`` needs neither: it plays one episode through skyrl-gym, with a fixed strategy in place of the model::

    uv run --find-links dist examples/train_with_skyrl.py --smoke
"""

import json
import re
import sys
from pathlib import Path

from palestra import Task
from palestra.bridges.skyrl import register, task_rows

ENV = "game:GuessTheNumber-v0-easy"
SETTINGS = {
    "data.train_data": ["runs/skyrl/train.jsonl"],
    "data.val_data": ["runs/skyrl/held-out.jsonl"],
    "environment.env_class": "palestra",
    "generator.max_turns": 8,
    "generator.max_input_length": 2048,
    "generator.sampling_params.max_generate_length": 256,
    "trainer.algorithm.advantage_estimator": "grpo",
}


def write_tasks() -> None:
    """Write the data sets: a row of SkyRL per task."""
    for name, seeds, split in (("train", range(4096), "train"), ("held-out", range(64), "test")):
        path = Path(f"runs/skyrl/{name}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = task_rows(Task(ENV, seed, split=split) for seed in seeds)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def train(options: list[str]) -> None:
    """Run SkyRL's trainer with Palestra's generator."""
    import ray
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.config.config import overrides_dict_to_dotlist
    from skyrl.train.entrypoints.main_base import BasePPOExp
    from skyrl.train.utils import validate_cfg
    from skyrl.train.utils.utils import initialize_ray

    from palestra.bridges.skyrl_generator import generator

    class PalestraExp(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            return generator(cfg.generator, inference_engine_client, tokenizer)

    @ray.remote(num_cpus=1)
    def run(cfg: SkyRLTrainConfig) -> None:
        PalestraExp(cfg).run()

    write_tasks()
    cfg = SkyRLTrainConfig.from_cli_overrides([*overrides_dict_to_dotlist(SETTINGS), *options])
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(run.remote(cfg))


def smoke() -> None:
    """Play one episode as SkyRL's own generator does, by binary search."""
    import skyrl_gym

    register()
    (row,) = task_rows([Task(ENV, seed=3)])
    env = skyrl_gym.make("palestra", env_config={}, extras={"max_turns": 8})
    (question,), _ = env.init(row["prompt"])
    print(question["content"])
    low, high, done = 1, 10, False
    while not done:
        guess = (low + high) // 2
        step = env.step(f"\\boxed{{{guess}}}")
        (message,), done = step["observations"], step["done"]
        low, high = (guess + 1, high) if re.search("is higher", message["content"]) else (low, guess - 1)
        print(guess, step["reward"], message["content"])
    env.close()
    assert env.get_metrics()["success"], "binary search did not find the number"


if __name__ == "__main__":
    if sys.argv[1:] == ["--smoke"]:
        smoke()
    else:
        train(sys.argv[1:])
