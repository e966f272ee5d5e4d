r"""What training costs beside the arithmetic itself, beside TRL, and beside itself without groups played ahead.

    bash benchmarks/peers/build.sh             # once, to have TRL beside ours
    python benchmarks/training.py              # SmolLM2-135M, about ten minutes on two cores
    python benchmarks/training.py learner      # one of the three
    python benchmarks/training.py --quick      # tiny models, under a minute

learner   tokens a second of ``Learner.update`` against a bare torch loop over the same micro-batches: the same forward pass,
          the vocabulary head only where a token was sampled, a clipped loss, backward, gradient clipping and AdamW. The bare
          loop is handed finished tensors; the learner starts from the batch.
grpo      a whole step of ``Trainer`` (generate, measure, update, publish, record) against a step of TRL's GRPOTrainer: the same
          model in float32, the same prompts, the same number of completions of the same length, the same threads.
ahead     asynchronous against synchronous training where an environment's steps take 0.2 s, and one in a hundred ten times as
          long: the same recipe, as many updates, wall-clock, and what both have learned by the end.

Left out: GPUs, and more than one rank.
"""

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import transformers
from rows import Row, finish, interleaved

import palestra
from palestra.adapters import Wrapper
from palestra.core import AsyncEnv, EngineSession, Sampling, Step
from palestra.evaluation import compare, evaluate_async, read_episodes, success_scores
from palestra.foundation.encoding import Ints, floats, ints
from palestra.foundation.seeding import derive
from palestra.inference.models import build_tiny, fetch_smollm2, find_model
from palestra.policies.sampled import SampledPolicy
from palestra.recipes.algorithms import LossConfig
from palestra.recipes.config import TrainConfig
from palestra.recipes.learner import LearnerConfig, PackingConfig
from palestra.recipes.model import ModelConfig
from palestra.recipes.reading import resolve
from palestra.registry import spec
from palestra.training.assembly import assemble
from palestra.training.learner.batch import Batch, micro_batch, plan, token_weights
from palestra.training.learner.learner import Learner
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import Inputs
from palestra.training.parts import register_variants
from palestra.training.tasks import KnownOutcomes
from palestra.training.trainer import Trainer
from palestra.training.warm_start import warm_start
from palestra.trajectory import Completion, Segment, Span, StopReason, Task, Trajectory, Turn

LOSS = LossConfig(importance="none")
PEERS = Path(__file__).parent / "peers"
GAME = "game:GuessTheNumber-v0-easy"
SLOW = "bench:SlowGuess-v0"
MEDIAN_SECONDS = 0.2
_ENOUGH = 50
TAIL = 10.0
"""The 99th percentile over the median."""


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
    passes: list[Any] = []
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


# -------------------------------------------------------------------------------------------------------- against TRL's GRPO


def _never_stopping(trainer: Trainer) -> None:
    """Every completion takes all the tokens it may, as the peer's are made to."""
    generate = trainer.engine.generate

    async def unstopped(prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Any:
        return await generate(prompt, msgspec.structs.replace(sampling, stop_ids=()), session)

    trainer.engine.generate = unstopped  # type: ignore[method-assign]


def _our_steps(model: str, folder: Path, *, tasks: int, group: int, tokens: int, steps: int) -> tuple[list[float], list[str]]:
    """Wall-clock of every step, and the prompts of the first."""
    play = {"tasks": tasks, "group_size": group, "max_tokens": tokens, "concurrency": tasks * group}
    data: dict[str, Any] = {
        # A group's prompt is computed once, as a recipe would have it.
        "model": {"path": model, "share_prefix": True, "attention": "eager"},
        "envs": {GAME: 1.0},
        "steps": steps,
        "checkpoint_every": 1000,
        "samples": 0,
        "play": play,
        "engine": {"batch": tasks * group, "rows": tasks * group},
        "advantage": {"method": "grpo"},
        "learner": {"learning_rate": 1e-6},
    }
    config = msgspec.convert(data, TrainConfig)
    marks = [0.0]
    trainer = assemble(config, folder, show=lambda _: marks.append(time.perf_counter()))
    _never_stopping(trainer)
    prompts = []
    for number in range(trainer.config.play.tasks):
        task = trainer.drawing.draw(number, KnownOutcomes({}, {}))
        with palestra.make(task.env) as env:
            prompts.append(str(env.reset(task=task)[0]))
    marks[0] = time.perf_counter()
    asyncio.run(trainer.train())
    return list(np.diff(marks)), prompts


def grpo_rows(model: str, python: Path, *, tasks: int, group: int, tokens: int, steps: int) -> list[Row]:
    if not python.exists():
        print("peers: TRL is not built (benchmarks/peers/build.sh)")
        return []
    with tempfile.TemporaryDirectory() as folder:
        ours, prompts = _our_steps(model, Path(folder) / "run", tasks=tasks, group=group, tokens=tokens, steps=steps)
        work = Path(folder) / "work.json"
        asked = {"model": model, "prompts": prompts, "group": group, "tokens": tokens, "steps": steps}
        work.write_text(json.dumps({**asked, "threads": torch.get_num_threads()}))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [python, PEERS / "trl_grpo.py", work]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        theirs = json.loads(done.stdout.splitlines()[-1])["seconds"]
    # The first step of both is left out: it builds what later ones find.
    ours_best, theirs_best = (float(np.median(side[1:])) for side in (ours, theirs))
    return [
        Row("grpo: a step of TRL over a step of ours (medians)", theirs_best / ours_best, ">= 1"),
        Row("grpo: seconds a step, ours", ours_best, ""),
        Row("grpo: seconds a step, TRL", theirs_best, ""),
    ]


# ------------------------------------------------------------------------------------------------- asynchronous, synchronous


class Delayed(Wrapper):
    """Every step takes its time: the delay of an episode's step follows from its task, and has a long tail."""

    async def step(self, action: str) -> Step:
        self._step = getattr(self, "_step", 0) + 1
        sigma = np.log(TAIL) / 2.3263
        seconds = MEDIAN_SECONDS * float(np.exp(sigma * derive(self.task.seed, "delay", self._step).standard_normal()))
        await asyncio.sleep(seconds)
        return await super().step(action)

    async def reset(self, **options: Any) -> Any:
        self._step = 0
        return await super().reset(**options)


def _run_ahead(config: TrainConfig, folder: Path, staleness: int) -> tuple[float, Any]:
    """Seconds of a run, and its episodes on held-out tasks, which are not slow."""
    (brief,) = config.envs
    asked = msgspec.structs.replace(config, envs={SLOW: 1.0}, staleness=staleness, ahead=staleness // 2)
    trainer = assemble(asked, folder)
    began = time.perf_counter()
    asyncio.run(trainer.train())
    seconds = time.perf_counter() - began
    policy = SampledPolicy(trainer.sampled.renderer, trainer.engine, trainer.sampled.sampling)
    asyncio.run(evaluate_async(brief, policy, n=500, seed=1, out=folder / "held-out", concurrency=128))
    return seconds, success_scores(read_episodes(folder / "held-out"))


def ahead_rows(*, steps: int, lessons: int) -> list[Row]:
    """The recipe of the learning curves with half as many episodes a step, from one warm start."""

    def delayed(env: AsyncEnv) -> AsyncEnv:
        return Delayed(env)

    schedule = [f"entropy.steps={max(1, steps * 4 // 5)}", f"learner.decay=[{6 * steps},{12 * steps}]"]
    size = ["play.tasks=16", "play.concurrency=1024", "engine.batch=128", "engine.rows=1024"]
    wanted = [f"steps={steps}", f"checkpoint_every={steps}", f"warm_start.episodes={lessons}", *schedule, *size]
    config = resolve(Path("cpu/guess"), wanted)
    register_variants(config.variants)
    (brief,) = config.envs
    base = spec(brief)
    palestra.register(SLOW, base.entry, kwargs=base.kwargs, wrappers=[*base.wrappers, delayed])
    assert config.warm_start is not None
    with tempfile.TemporaryDirectory() as scratch:
        begun = warm_start(config, config.warm_start, str(find_model(config.model.path)), Path(scratch) / "warm")
        model = msgspec.structs.replace(config.model, path=str(begun))
        config = msgspec.structs.replace(config, model=model, warm_start=None, variants={})
        waited, synchronous = _run_ahead(config, Path(scratch) / "sync", 0)
        ahead, asynchronous = _run_ahead(config, Path(scratch) / "async", 8)
    difference = compare(asynchronous, synchronous)
    # In a few steps the first groups, which could not be played ahead, are most of it, and nothing is learned.
    faster, as_good = (">= 2", ">= 0") if steps >= _ENOUGH else ("", "")
    return [
        Row("ahead: synchronous over asynchronous, wall-clock of as many updates", waited / ahead, faster),
        Row("ahead: asynchronous minus synchronous success, upper end of the interval", difference.difference.high, as_good),
        Row("ahead: asynchronous minus synchronous success, lower end of the interval", difference.difference.low, ""),
        Row("ahead: success, synchronous", float(np.mean([score.value for score in synchronous])), ""),
        Row("ahead: success, asynchronous", float(np.mean([score.value for score in asynchronous])), ""),
        Row("ahead: seconds a step, synchronous", waited / steps, ""),
        Row("ahead: seconds a step, asynchronous", ahead / steps, ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=["learner", "grpo", "ahead", []], help="which rows; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny models instead of SmolLM2, in under 50 s")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--trl", type=Path, default=PEERS / ".venv-trl/bin/python", help="the Python of TRL's venv")
    options = parser.parse_args()
    wanted = options.rows or ["learner", "grpo", "ahead"]
    transformers.utils.logging.disable_progress_bar()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        if options.quick:
            model = str(build_tiny(Path(folder) / "tiny", envs="game:GuessTheNumber*"))
            learner, grpo = {"episodes": 64, "scale": 10}, {"tasks": 4, "group": 4, "tokens": 8, "steps": 4}
            ahead = {"steps": 8, "lessons": 64}
        else:
            model = str(fetch_smollm2())
            learner, grpo = {"episodes": 4, "scale": 16}, {"tasks": 4, "group": 8, "tokens": 32, "steps": 4}
            ahead = {"steps": 60, "lessons": 2048}
        if "learner" in wanted:
            rows += learner_rows(model, rounds=options.rounds, **learner)
        if "grpo" in wanted:
            rows += grpo_rows(model, options.trl, **grpo)
        if "ahead" in wanted:
            rows += ahead_rows(**ahead)
    finish(rows)


if __name__ == "__main__":
    main()
