"""Write the log-probabilities that vLLM computes for a prompt with each of several models. Runs with the Python of vLLM's venv.

python vllm_scores.py FOLDER "[3, 4, 5]": reads the models FOLDER/*/*, whose folders are named after the type of their numbers,
and writes scores.json beside each config.json. A model that fails has a text there.
"""

import json
import sys
import traceback
from pathlib import Path


def scores(folder: Path, ids: list[int]) -> list[float]:
    """Return the log-probability of every token but the first."""
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    sizes = {"max_model_len": 64, "max_num_seqs": 2, "max_num_batched_tokens": 64}
    try:
        engine = LLM(str(folder), skip_tokenizer_init=True, dtype=folder.name, enforce_eager=True, **sizes)
        sampling = SamplingParams(max_tokens=1, prompt_logprobs=1, detokenize=False)
        (found,) = engine.generate([{"prompt_token_ids": ids}], sampling, use_tqdm=False)
        return [row[token].logprob for token, row in zip(ids[1:], found.prompt_logprobs[1:], strict=True)]
    finally:
        cleanup_dist_env_and_memory()


def main(folder: Path, ids: list[int]) -> None:
    for config in sorted(folder.glob("*/*/config.json")):
        try:
            found: list[float] | str = scores(config.parent, ids)
        except Exception:  # noqa: BLE001 - whatever it raises is reported
            found = traceback.format_exc()
        config.with_name("scores.json").write_text(json.dumps(found))


if __name__ == "__main__":  # vLLM starts processes, which import this file
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
