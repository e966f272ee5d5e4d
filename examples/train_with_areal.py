# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["palestra[render]", "areal==1.0.4"]
# ///
"""Train with AReaL on a game of Palestra.

Training needs GPUs. The arguments are AReaL's own: a YAML file with its settings, and KEY=VALUE::

    uv run --find-links dist examples/train_with_areal.py --config grpo.yaml

``--smoke`` needs no GPU: AReaL's ``WorkflowExecutor`` plays four episodes, with a fixed strategy in place of the model.
"""

import logging
import re
import sys
import tempfile
from pathlib import Path

from palestra import Task
from palestra.bridges.areal import PalestraWorkflow, task_rows

ENV = "game:GuessTheNumber-v0-easy"


def train(arguments: list[str]) -> None:
    """Run AReaL's trainer. Every rollout worker finds the workflow by its name."""
    from areal import PPOTrainer
    from areal.api.cli_args import GRPOConfig, load_expr_config
    from datasets import Dataset

    config, _ = load_expr_config(arguments, GRPOConfig)
    tasks, held_out = ([Task(ENV, seed, split=split) for seed in range(n)] for n, split in ((4096, "train"), (64, "test")))
    settings = {"gconfig": config.gconfig, "tokenizer": config.tokenizer_path, "max_turns": 8}
    name = "palestra.bridges.areal.PalestraWorkflow"
    rows, held_out_rows = Dataset.from_list(task_rows(tasks)), Dataset.from_list(task_rows(held_out))
    with PPOTrainer(config, train_dataset=rows, valid_dataset=held_out_rows) as trainer:
        trainer.train(workflow=name, workflow_kwargs=settings, eval_workflow=name, eval_workflow_kwargs=settings)


def smoke() -> None:
    """Play four episodes in AReaL's executor, by binary search."""
    from areal.api.cli_args import GenerationHyperparameters, InferenceEngineConfig
    from areal.api.io_struct import ModelResponse
    from areal.infra import WorkflowExecutor
    from transformers import AutoTokenizer

    from palestra.inference.models.tiny import build_tiny

    tokenizer = AutoTokenizer.from_pretrained(build_tiny(Path(tempfile.mkdtemp()) / "tiny", envs=ENV))

    class Searcher:
        """Stands in for AReaL's inference engine."""

        def get_version(self) -> int:
            return 0

        async def agenerate(self, request):
            low, high = 1, 10
            for way, number in re.findall(r"is (higher|lower) than (\d+)", tokenizer.decode(request.input_ids)):
                low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
            move = f"\\boxed{{{(low + high) // 2}}}"
            ids = [*tokenizer.encode(move, add_special_tokens=False), request.gconfig.stop_token_ids[0]]
            return ModelResponse(
                input_tokens=request.input_ids,
                output_tokens=ids,
                output_logprobs=[-0.1] * len(ids),
                output_versions=[0] * len(ids),
                tokenizer=tokenizer,
            )

    executor = WorkflowExecutor(InferenceEngineConfig(consumer_batch_size=4, max_concurrent_rollouts=4), Searcher())
    executor.initialize(logging.getLogger("areal"), train_data_parallel_size=1)
    try:
        workflow = PalestraWorkflow(GenerationHyperparameters(max_new_tokens=32), tokenizer)
        batch = executor.rollout_batch(task_rows(Task(ENV, seed) for seed in range(4)), workflow)
    finally:
        executor.destroy()
    for row in batch:
        print("tokens", row["input_ids"].shape[1], "sampled", int(row["loss_mask"].sum()), "reward", row["rewards"].item())
    assert all(row["rewards"].item() > 0.5 for row in batch), "binary search did not find the number"


if __name__ == "__main__":
    if sys.argv[1:] == ["--smoke"]:
        smoke()
    else:
        train(sys.argv[1:])
