r"""What the learner costs beside the arithmetic itself. Ratios between two things of the same run, measured in turns.

    python benchmarks/training.py              # SmolLM2-135M, a few minutes on two cores
    python benchmarks/training.py --quick      # the tiny model, seconds

learner   tokens a second of ``Learner.update`` against a bare torch loop over the same micro-batches: the same forward pass,
          the vocabulary head only where a token was sampled, a clipped loss, backward, gradient clipping and AdamW. The bare
          loop is handed finished tensors; the learner starts from the batch.

Left out: GPUs, and more than one rank.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rows import Row, finish, interleaved

from palestra.models import build_tiny, fetch_smollm2
from palestra.training.batch import Batch, PackingConfig, micro_batch, plan, token_weights
from palestra.training.learner import Learner, LearnerConfig
from palestra.training.loss import LossConfig
from palestra.training.model import Inputs, ModelConfig, load_model
from palestra.trajectory import Completion, Segment, Span, StopReason, Task, Trajectory, Turn, floats, ints

LOSS = LossConfig(importance="none")


def _episode(rng: np.random.Generator, vocabulary: int, scale: int) -> Trajectory:
    """Three turns: a prompt of about four times ``scale`` tokens, actions and observations of about ``scale``."""
    ids, spans = rng.integers(vocabulary, size=rng.integers(2, 6) * scale).tolist(), []
    for turn in range(3):
        spans.append(Span(len(ids), len(ids) + int(rng.integers(scale // 2, 2 * scale)), turn))
        ids += rng.integers(vocabulary, size=spans[-1].stop - len(ids) + int(rng.integers(scale // 2, 2 * scale))).tolist()
    sampled = sum(span.stop - span.start for span in spans)
    segment = Segment(ints(ids), tuple(spans), floats(np.full(sampled, -1.0)))
    turns = tuple(Turn("o", Completion("a")) for _ in range(3))
    return Trajectory(Task("game:x"), StopReason.TERMINATED, turns=turns, segments=(segment,))


def _bare_loop(model: Any, batch: Batch, packing: PackingConfig) -> Callable[[], None]:
    """A loop as one would write it for this batch and nothing else."""
    assert batch.old is not None
    assert batch.advantages is not None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    weights = token_weights(batch, "token_mean", 1)
    passes = []
    for members in plan(batch, 1, packing)[0]:
        micro = micro_batch(batch, members, packing.layout)
        columns = [torch.from_numpy(column[micro.tokens]).float() for column in (batch.old, batch.advantages, weights)]
        passes.append((Inputs.of(micro, torch.device("cpu")), *columns))
    model.train()

    def step() -> None:
        for inputs, old, advantages, share in passes:
            hidden = model.model(
                input_ids=inputs.input_ids,
                attention_mask=inputs.attention_mask,
                position_ids=inputs.position_ids,
                use_cache=False,
            ).last_hidden_state
            logits = model.lm_head(hidden.flatten(0, 1)[inputs.predictors]).float()
            logprobs = torch.log_softmax(logits, -1).gather(-1, inputs.targets.unsqueeze(-1)).squeeze(-1)
            ratio = torch.exp(logprobs - old)
            objective = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
            (-(share * objective).sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def learner_rows(folder: str, *, episodes: int, scale: int, rounds: int) -> list[Row]:
    def load() -> Any:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    packing = PackingConfig(positions=4096)
    rng = np.random.default_rng(0)
    learner = Learner(load_model(ModelConfig(folder), load()), LearnerConfig(packing=packing, loss=LOSS))
    vocabulary = learner.network.language_model.config.vocab_size
    batch = Batch.of([_episode(rng, vocabulary, scale) for _ in range(episodes)])
    old = learner.measure(batch).logprobs
    batch = replace(batch, old=old, advantages=rng.normal(size=len(old)))
    bare = _bare_loop(load(), batch, packing)
    positions = sum(len(ids) for ids in batch.ids)
    learner.update(batch)
    bare()
    ours, theirs, ratio = interleaved(lambda: _seconds(lambda: learner.update(batch)), lambda: _seconds(bare), rounds)
    return [
        Row("learner: tokens/s over a bare torch loop", ratio, ">= 0.95"),
        Row("learner: tokens/s (best round)", positions / ours, ""),
        Row("bare loop: tokens/s (best round)", positions / theirs, ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny model instead of SmolLM2, in under 50 s")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            model = build_tiny(Path(folder) / "tiny", envs="game:GuessTheNumber*")
            finish(learner_rows(str(model), episodes=64, scale=10, rounds=options.rounds))
    finish(learner_rows(str(fetch_smollm2()), episodes=4, scale=16, rounds=options.rounds))


if __name__ == "__main__":
    main()
