"""Steps of TRL's GRPOTrainer on given prompts, timed. Run by ``benchmarks/training.py`` in a venv of its own.

    python trl_grpo.py WORK.json   # {"model", "prompts", "group", "tokens", "steps", "threads"} -> {"seconds": [...]}

Every completion has exactly ``tokens`` tokens, so that both sides compute the same. Gradient checkpointing is off, as it only
costs time here; everything else that changes the arithmetic is as GRPO has it: one iteration, no KL, float32.
"""

import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

work = json.loads(Path(sys.argv[1]).read_text())
torch.set_num_threads(work["threads"])
marks: list[float] = []


class Clock(TrainerCallback):
    """Notes when every step ends."""

    def on_step_end(self, *args: object, **kwargs: object) -> None:
        marks.append(time.perf_counter())


def reward(completions: list[object], **_: object) -> list[float]:
    """Some spread, so that no group is left out."""
    return [float(number % 2) for number in range(len(completions))]


prompts = [[{"role": "user", "content": text}] for text in work["prompts"]]
tokenizer = AutoTokenizer.from_pretrained(work["model"])
with tempfile.TemporaryDirectory() as folder:
    settings = GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=len(prompts) * work["group"],
        num_generations=work["group"],
        max_completion_length=work["tokens"],
        generation_kwargs={"min_new_tokens": work["tokens"]},
        max_steps=work["steps"],
        num_iterations=1,
        beta=0.0,
        learning_rate=1e-6,
        temperature=1.0,
        max_grad_norm=1.0,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
        shuffle_dataset=False,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(work["model"], dtype=torch.float32),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": prompts * work["steps"]}),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    began = time.perf_counter()
    trainer.train()
marks.insert(0, began)
print(json.dumps({"seconds": [after - before for before, after in itertools.pairwise(marks)]}))
