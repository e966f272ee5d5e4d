"""What a run will take, before it takes it: memory, tokens, disk. Numbers from the recipe and the model's configuration alone.

The model is counted exactly where its configuration can be read (no weights are loaded), else by the size that its name states.
Tokens are upper bounds: every episode to its horizon, every turn to its limit. So are activations: of a micro-batch full
to ``learner.packing.positions``. Memory leaves out what the libraries take, and activations where only a name is known.
"""

import re
from typing import Any

import msgspec

from palestra.registry import spec
from palestra.training.assembly import register_variants
from palestra.training.config import TrainConfig

__all__ = ["Estimate", "ModelSize", "estimate", "model_size"]

_GIGA = 1e9
_FLOAT = 4
_MOMENTS = 2
"""Of AdamW, for every trained parameter, in float32."""
_SHARDED = ("weights", "gradients", "optimiser", "reference")
_BYTES = {"float32": 4, "bfloat16": 2}


class ModelSize(msgspec.Struct, frozen=True):
    """How large a model is, and how that is known."""

    parameters: float
    source: str
    vocabulary: int = 0
    """0 where only the name is known; so are the next two."""
    width: int = 0
    layers: int = 0


class Estimate(msgspec.Struct, frozen=True):
    """Bytes and counts. ``memory`` is of the learner's process or ranks together, by what it is for."""

    model: ModelSize
    trained: float
    """Parameters that get a gradient."""
    memory: dict[str, float]
    episodes: int
    """A step."""
    turns: int
    """The most of an episode, at the last step."""
    tokens: int
    """The most that one step samples."""
    run_tokens: int
    checkpoint: float
    disk: float

    def on_each_of(self, ranks: int) -> float:
        """The learner's memory on one of ``ranks``: parameters are shared out, what a pass takes is not."""
        shared = sum(self.memory.get(name, 0.0) for name in _SHARDED)
        return sum(self.memory.values()) - shared + shared / ranks

    def lines(self) -> list[str]:
        """For people."""
        total, model = sum(self.memory.values()), self.model
        parts = ", ".join(f"{name} {_size(value)}" for name, value in self.memory.items())
        shares = ", ".join(f"{_size(self.on_each_of(ranks))} on each of {ranks}" for ranks in (2, 4, 8))
        return [
            f"model       {model.parameters / 1e6:,.1f} M parameters ({model.source}), {self.trained / 1e6:,.1f} M trained",
            f"memory      {_size(total)}: {parts}",
            f"            sharded over ranks: {shares}",
            f"a step      {self.episodes:,} episodes of at most {self.turns} turns; at most {self.tokens:,} tokens sampled",
            f"the run     at most {self.run_tokens:,} tokens",
            f"disk        {_size(self.disk)}: checkpoints of {_size(self.checkpoint)} each",
        ]


def estimate(config: TrainConfig) -> Estimate:
    """What ``config`` takes."""
    register_variants(config.variants)
    model = model_size(config.model.path)
    trained = _trained(config, model)
    checkpoint = trained * _FLOAT * (1 + _MOMENTS)
    turns = [_turns(config, step) for step in range(config.steps)]
    episodes = config.play.tasks * config.play.group_size
    return Estimate(
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
    """The size of the model at ``path``: counted from its configuration, or read off its name."""
    import torch
    import transformers

    if path == "smollm2":
        return ModelSize(134_515_008, "known", 49_152, 576, 30)
    if path.startswith("tiny:"):
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
    # Rank r beside every linear layer of a square block of 12·width² weights: about 18·r·width a layer.
    return 18.0 * config.model.lora.rank * model.width * model.layers or 0.01 * model.parameters


def _memory(config: TrainConfig, model: ModelSize, trained: float) -> dict[str, float]:
    packing = config.learner.packing
    memory = {
        "weights": model.parameters * _FLOAT,
        "gradients": trained * _FLOAT,
        "optimiser": trained * _FLOAT * _MOMENTS,
    }
    if config.needs_reference and config.model.lora is None:
        memory["reference"] = model.parameters * _FLOAT
    if model.width:
        kept = 2 if config.model.recompute else 34  # values a position and layer keeps, in widths; the classical count
        memory["activations"] = packing.positions * model.layers * model.width * kept * _BYTES[config.model.compute] / 2
        # Logits, their softmax and its gradient.
        memory["logits"] = 3.0 * min(config.model.head_slice, packing.positions) * model.vocabulary * _FLOAT
    if config.engine.kind == "local":
        memory["engine"] = model.parameters * _BYTES[config.engine.dtype]
    return memory


def _turns(config: TrainConfig, step: int) -> int:
    """The most turns an episode of ``step`` may have. A gated horizon is taken at its longest."""
    limits = []
    for env in config.envs:
        own: Any = spec(env).max_turns
        if config.horizon is None:
            limits.append(own)
            continue
        schedule: Any = config.horizon.environments.get(env, config.horizon.default)
        longest = schedule.turns[-1] if hasattr(schedule, "threshold") else config.horizon.at(env, step)
        limits.append(longest if own is None else min(longest, own))
    return max((limit for limit in limits if limit is not None), default=1)


def _size(count: float) -> str:
    return f"{count / _GIGA:.1f} GB" if count >= _GIGA else f"{count / 1e6:.1f} MB"
