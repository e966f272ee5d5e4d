"""Estimate the memory, tokens and disk space of a run from its recipe and the model's configuration, before it starts.

If the model's configuration can be read, its parameters are counted exactly, without loading weights. Otherwise the size is
read from its name. Tokens are upper bounds: every episode reaches its horizon and every turn its limit. Activations are upper
bounds too: a micro-batch has ``learner.packing.positions`` positions. Memory leaves out what the libraries need, and leaves out
activations if only the name of the model is known.
"""

import re
from typing import Any

import msgspec

from palestra.registry import spec
from palestra.training.algorithms.horizon import Fixed, Linear, Schedule, Stepwise, turns_at
from palestra.training.config import TrainConfig
from palestra.training.parts import check_parts
from palestra.training.tasks import TrainingTasks

__all__ = ["ModelSize", "RunEstimate", "estimate", "model_size"]

_GIGA = 1e9
_FLOAT = 4
_MOMENTS = 2
"""Values that AdamW keeps per trained parameter, in float32."""
_SHARDED = ("weights", "gradients", "optimizer", "reference")
_BYTES = {"float32": 4, "bfloat16": 2}


class ModelSize(msgspec.Struct, frozen=True):
    """The size of a model, and the source of that number."""

    parameters: float
    source: str
    vocabulary: int = 0
    """This field and the next two are 0 if only the model's name is known."""
    width: int = 0
    layers: int = 0


class RunEstimate(msgspec.Struct, frozen=True):
    """Bytes and counts. ``memory`` is that of all ranks of the learner together, by purpose."""

    model: ModelSize
    trained: float
    """Parameters that are trained."""
    memory: dict[str, float]
    episodes: int
    """Per step."""
    turns: int
    """The most turns of an episode, at the last step."""
    tokens: int
    """The most tokens that one step samples."""
    run_tokens: int
    checkpoint: float
    disk: float

    def on_each_of(self, ranks: int) -> float:
        """Return the learner's memory per rank. Parameters are sharded over ranks; the memory of a pass is not."""
        shared = sum(self.memory.get(name, 0.0) for name in _SHARDED)
        return sum(self.memory.values()) - shared + shared / ranks

    def lines(self) -> list[str]:
        """Return the estimate as lines of text."""
        total, model = sum(self.memory.values()), self.model
        parts = ", ".join(f"{name} {_size(value)}" for name, value in self.memory.items())
        shares = ", ".join(f"{_size(self.on_each_of(ranks))} on each of {ranks}" for ranks in (2, 4, 8))
        return [
            f"model       {model.parameters / 1e6:,.1f} M parameters ({model.source}), {self.trained / 1e6:,.1f} M trained",
            f"memory      {_size(total)}: {parts}",
            f"            sharded over ranks: {shares}",
            f"per step    {self.episodes:,} episodes of at most {self.turns} turns; at most {self.tokens:,} tokens sampled",
            f"per run     at most {self.run_tokens:,} tokens",
            f"disk        {_size(self.disk)}: checkpoints of {_size(self.checkpoint)} each",
        ]


def estimate(config: TrainConfig) -> RunEstimate:
    """Estimate what ``config`` needs."""
    check_parts(config)
    config.check_devices()
    TrainingTasks(config)  # raises if an evaluation holds out everything
    model = model_size(config.model.path)
    trained = _trained(config, model)
    checkpoint = trained * _FLOAT * (1 + _MOMENTS)
    turns = [_turns(config, step) for step in range(config.steps)]
    episodes = config.play.tasks * config.play.group_size
    return RunEstimate(
        model=model,
        trained=trained,
        memory=_memory(config, model, trained),
        episodes=episodes,
        turns=turns[-1],
        tokens=episodes * turns[-1] * config.play.max_tokens,
        run_tokens=sum(episodes * most * config.play.max_tokens for most in turns),
        checkpoint=checkpoint,
        disk=checkpoint * (config.keep + 1),  # a new one is written before the oldest goes
    )


def model_size(path: str) -> ModelSize:
    """Return the size of the model at ``path``: counted from its configuration, or read from its name."""
    import torch
    import transformers

    if path == "smollm2":
        return ModelSize(134_515_008, "known", 49_152, 576, 30)
    if path.startswith(("tiny:", "tiny-words:")):
        return ModelSize(1e5, "about", 64, 64, 2)
    try:
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError):
        stated = re.findall(r"(\d+(?:\.\d+)?)([mb])(?![a-z])", path.lower())
        if not stated:
            return ModelSize(0.0, "its size is not known here")
        number, unit = stated[-1]
        return ModelSize(float(number) * {"m": 1e6, "b": 1e9}[unit], "by its name")
    text = config.get_text_config()
    return ModelSize(
        model.num_parameters(), "counted", text.vocab_size, text.hidden_size, getattr(text, "num_hidden_layers", 0)
    )


def _trained(config: TrainConfig, model: ModelSize) -> float:
    if config.model.lora is None:
        return model.parameters
    # Rank r beside every linear layer of a square block of 12·width² weights: about 18·r·width per layer.
    return 18.0 * config.model.lora.rank * model.width * model.layers or 0.01 * model.parameters


def _memory(config: TrainConfig, model: ModelSize, trained: float) -> dict[str, float]:
    packing = config.learner.packing
    memory = {
        "weights": model.parameters * _FLOAT,
        "gradients": trained * _FLOAT,
        "optimizer": trained * _FLOAT * _MOMENTS,
    }
    if config.needs_reference and config.model.lora is None:
        memory["reference"] = model.parameters * _FLOAT
    if model.width:
        kept = 2 if config.model.recompute else 34  # values per position and layer, in units of the width; the usual count
        memory["activations"] = packing.positions * model.layers * model.width * kept * _BYTES[config.model.compute] / 2
        # Logits, their softmax and its gradient.
        memory["logits"] = 3.0 * min(config.model.head_slice, packing.positions) * model.vocabulary * _FLOAT
    if config.engine.name == "local":
        memory["engine"] = model.parameters * _BYTES[config.engine.dtype]
    return memory


def _turns(config: TrainConfig, step: int) -> int:
    """The most turns that an episode of ``step`` may have, assuming that every gate of a horizon is open."""
    limits = []
    for env in config.envs:
        own: Any = spec(env).max_turns
        if config.horizon is None:
            limits.append(own)
            continue
        longest = _longest(config.horizon.schedule(env), step)
        limits.append(longest if own is None else min(longest, own))
    return max((limit for limit in limits if limit is not None), default=1)


def _longest(schedule: Schedule, step: int) -> int:
    """The most turns that ``schedule`` may allow at ``step``, whatever the outcomes of the steps before it are."""
    most: int | None = None if isinstance(schedule, Fixed | Linear | Stepwise) else getattr(schedule, "longest", None)
    return turns_at(schedule, step) if most is None else most


def _size(count: float) -> str:
    return f"{count / _GIGA:.1f} GB" if count >= _GIGA else f"{count / 1e6:.1f} MB"
