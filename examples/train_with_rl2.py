# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[hf]"]
# ///
"""Write the data set for RL2 (``rl-square`` 0.0.2), and print the arguments that train on a game of Palestra.

    uv run --find-links dist examples/train_with_rl2.py Qwen/Qwen2.5-1.5B-Instruct runs/rl2/train.jsonl

RL2 needs GPUs, and versions of torch and SGLang of its own: start it in its own environment, with Palestra installed there, as
``torchrun -m RL2.trainer.ppo ARGUMENTS``. ``--smoke`` needs neither RL2 nor a GPU: it plays one episode through the environment
file as RL2's loop does, with a fixed strategy in place of the model.
"""

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path

from palestra import Task
from palestra.bridges import rl2

ENV = "game:GuessTheNumber-v0-easy"
ARGUMENTS = """
train_data.path={path} train_data.responses_per_prompt=8 rollout.env_path={env_file} rollout.max_turns=8
rollout.train_sampling_params.max_new_tokens=256
+rollout.train_sampling_params.skip_special_tokens=false +rollout.test_sampling_params.skip_special_tokens=false
"""


def write_tasks(model: str, path: Path) -> None:
    """Write one row per task."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = rl2.task_rows((Task(ENV, seed) for seed in range(4096)), model)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(ARGUMENTS.format(path=path, env_file=rl2.__file__).strip())


async def smoke() -> None:
    """Play one episode by binary search."""
    from transformers import AutoTokenizer

    from palestra.inference.models.tiny import build_tiny

    folder = str(build_tiny(Path(tempfile.mkdtemp()) / "tiny", envs=ENV))
    stop = AutoTokenizer.from_pretrained(folder).eos_token
    (row,) = rl2.task_rows([Task(ENV, seed=3)], folder)
    state, extra_info = await rl2.reset(row["extra_info"])
    rewards, done = [], False
    while not done:
        low, high = 1, 10
        for way, number in re.findall(r"is (higher|lower) than (\d+)", state):
            low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
        answer = await rl2.step(state, f"\\boxed{{{(low + high) // 2}}}{stop}", extra_info)
        state, extra_info, done = answer["next_state"], answer["extra_info"], answer["done"]
        rewards.append(answer["reward"])
    print(state)
    print("rewards", rewards)
    assert sum(rewards) > 0.5, "binary search did not find the number"


if __name__ == "__main__":
    if sys.argv[1:] == ["--smoke"]:
        asyncio.run(smoke())
    else:
        write_tasks(sys.argv[1], Path(sys.argv[2]))
