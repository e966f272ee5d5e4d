# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[hf]"]
# ///
"""Write the data set for slime, and print the arguments that train on a game of Palestra. slime is on GitHub only.

    uv run --find-links dist examples/train_with_slime.py runs/slime/train.jsonl

Add the arguments to those of slime's ``train.py``. ``--smoke`` plays two tasks without slime's trainer, by a fixed strategy; it
needs a checkout of slime on PYTHONPATH, and no GPU.
"""

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from palestra import Task
from palestra.bridges.slime import generate, task_rows

ENV = "game:GuessTheNumber-v0-easy"
ARGUMENTS = """
--prompt-data {path} --input-key prompt --metadata-key metadata
--custom-generate-function-path palestra.bridges.slime.generate
--dynamic-sampling-filter-path palestra.bridges.slime.keep_whole_groups
--n-samples-per-prompt 8 --rollout-max-response-len 256 --rollout-max-context-len 4096
"""


def write_tasks(path: Path) -> None:
    """Write one row per task."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in task_rows(Task(ENV, seed) for seed in range(4096))))
    print(ARGUMENTS.format(path=path).strip())


async def smoke() -> None:
    """Play two tasks by binary search, in place of slime's SGLang router."""
    from slime.utils import http_utils
    from slime.utils.types import Sample
    from transformers import AutoTokenizer

    from palestra.inference.models.tiny import build_tiny

    folder = str(build_tiny(Path(tempfile.mkdtemp()) / "tiny", envs=ENV))
    tokenizer = AutoTokenizer.from_pretrained(folder)

    async def post(url: str, payload: dict, **_) -> dict:
        low, high = 1, 10
        for way, number in re.findall(r"is (higher|lower) than (\d+)", tokenizer.decode(payload["input_ids"])):
            low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
        ids = tokenizer.encode(f"\\boxed{{{(low + high) // 2}}}", add_special_tokens=False)
        ids.append(payload["sampling_params"]["stop_token_ids"][0])
        return {"meta_info": {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[-0.1, one, None] for one in ids]}}

    http_utils.post = post
    args = SimpleNamespace(hf_checkpoint=folder, sglang_router_ip="", sglang_router_port=0)
    args.rollout_max_context_len, args.n_samples_per_prompt = 2048, 1
    for index, row in enumerate(task_rows(Task(ENV, seed) for seed in range(2))):
        sample = await generate(args, Sample(index=index, metadata=row["metadata"]), {"max_new_tokens": 32})
        print(sample.status.name, "tokens", len(sample.tokens), "sampled", sum(sample.loss_mask), "reward", sample.reward)
        assert sample.reward > 0.5, "binary search did not find the number"


if __name__ == "__main__":
    if sys.argv[1:] == ["--smoke"]:
        asyncio.run(smoke())
    else:
        write_tasks(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/slime/train.jsonl"))
