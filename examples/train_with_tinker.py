# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[render]", "tinker==0.36.0", "tinker-cookbook==0.5.8"]
# ///
"""Train with the Tinker cookbook on a game of Palestra.

Training needs an account with Tinker, and its key in TINKER_API_KEY::

    uv run --find-links dist examples/train_with_tinker.py Qwen/Qwen3-8B

``--smoke`` needs neither. It runs the cookbook's rollouts and its data processing with a fixed strategy in place of the model::

    uv run --find-links dist examples/train_with_tinker.py --smoke
"""

import asyncio
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from palestra import Task
from palestra.bridges.tinker import GroupOptions, task_source

ENV = "game:GuessTheNumber-v0-easy"


def tasks(count: int, split: str = "train") -> list[Task]:
    """Return the tasks to train on, or those that are held out."""
    return [Task(ENV, seed, split=split) for seed in range(count)]


def train(model: str) -> None:
    """Run the cookbook's training loop."""
    from tinker_cookbook import model_info
    from tinker_cookbook.rl import train
    from tinker_cookbook.rl.rollout_strategy import MinViableGroup

    options = GroupOptions(model, size=8, max_turns=8, context_length=4096)
    config = train.Config(
        model_name=model,
        recipe_name="palestra",
        renderer_name=model_info.get_recommended_renderer_name(model),
        log_path="runs/tinker",
        dataset_builder=task_source(tasks(4096), options, groups=32, held_out=tasks(64, "test")),
        learning_rate=4e-5,
        max_tokens=256,
        rollout_error_tolerance=MinViableGroup(),  # a failed episode is left out of its group
    )
    asyncio.run(train.main(config))


class BinarySearch:
    """In place of Tinker's sampling client: it reads the tokens of the prompt, and writes the next guess."""

    def __init__(self, model: str) -> None:
        from tinker_cookbook.tokenizer_utils import get_tokenizer

        self.tokenizer = get_tokenizer(model)

    async def sample_async(self, prompt, num_samples, sampling_params):
        """Answer as Tinker does."""
        low, high = 1, 10
        for way, number in re.findall(r"the number is (higher|lower) than (\d+)", self.tokenizer.decode(prompt.to_ints())):
            low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
        ids = self.tokenizer.encode(f"\\boxed{{{(low + high) // 2}}}", add_special_tokens=False)
        ids.append(sampling_params.stop[0])
        return SimpleNamespace(sequences=[SimpleNamespace(tokens=ids, logprobs=[-0.5] * len(ids), stop_reason="stop")])


async def smoke(folder: str) -> None:
    """Play a batch of groups with the tokenizer of a tiny model, and turn it into training data."""
    from tinker_cookbook.completers import TinkerTokenCompleter
    from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
    from tinker_cookbook.rl.rollouts import do_group_rollout

    from palestra.inference.models.tiny import build_tiny

    model = str(build_tiny(Path(folder) / "tiny", envs=ENV))
    dataset, _ = await task_source(tasks(4), GroupOptions(model, size=2), groups=4)()
    policy = TinkerTokenCompleter(BinarySearch(model), max_tokens=32)
    groups = [await do_group_rollout(group, policy) for group in dataset.get_batch(0)]
    data, _ = assemble_training_data(groups, compute_advantages(groups))
    rewards = [reward for group in groups for reward in group.get_total_rewards()]
    print(
        f"{len(data)} data, {sum(datum.model_input.length for datum in data)} tokens, mean reward {sum(rewards) / len(rewards)}"
    )
    assert min(rewards) == 1.0, "binary search did not find the number"


if __name__ == "__main__":
    if sys.argv[1] == "--smoke":
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(smoke(folder))
    else:
        train(sys.argv[1])
