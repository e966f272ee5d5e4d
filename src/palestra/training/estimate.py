"""Estimate the memory, tokens and disk space of a run from its recipe and the model's configuration, before it starts.

If the model's configuration can be read, the learner's largest pass is run on tensors without memory (``learner.planning``): no
weights are needed. Otherwise the size is read from the model's name, and the memory of passes is not known.

Sampled tokens are upper bounds: every episode reaches its horizon and every turn its limit. The largest pass is an estimate,
not a bound: each episode is one segment, and its prompts and observations together are as long as what it samples. The length
of prompts is not known before the run. Memory leaves out what the libraries need and the cache of a local engine.
"""

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from palestra.errors import Unsupported
from palestra.recipes.config import TrainConfig
from palestra.registry import spec
from palestra.training.algorithms.horizon import Fixed, Linear, Schedule, Stepwise, schedule_of, turns_at
from palestra.training.learner.batch import WORTH_SHARING
from palestra.training.memory import FLOAT, MOMENTS, RankMemory, in_bytes
from palestra.training.parts import load_parts
from palestra.training.tasks import TrainingTasks

if TYPE_CHECKING:
    from palestra.training.learner.planning import MicroBatchShape

__all__ = ["ModelSize", "RunEstimate", "estimate", "model_size"]

_BYTES = {"float32": 4, "bfloat16": 2}
_RANKS = (2, 4, 8)
_SHOWN = 64
"""Tokens per turn of a shot, in the plan of a pass."""


class ModelSize(msgspec.Struct, frozen=True):
    """The size of a model, and the source of that number."""

    parameters: float
    source: str
    trained: float = 0.0
    """The number of parameters that are trained."""
    passes: float | None = None
    """Bytes of the largest pass; ``None`` if it is not known."""
    sharded: float | None = None
    """The same bytes if the parameters are sharded over ranks, and ranks divide micro-batches as configured."""
    gathered: float = 0.0
    """Bytes that sharding adds to each rank."""
    reason: str = ""
    """Why ``passes`` is not known."""


class RunEstimate(msgspec.Struct, frozen=True):
    """Bytes and counts."""

    model: ModelSize
    memory: dict[str, float]
    """Of a learner with one rank and its engine, by purpose."""
    host: float
    """Bytes of the optimizer that are on the host and not on the GPU of the learner, over all ranks."""
    episodes: int
    """Per step."""
    turns: int
    """The most turns of an episode, at the last step."""
    tokens: int
    """The most tokens that one step samples."""
    run_tokens: int
    checkpoint: float
    opponents: float
    """Bytes of the earlier weights that the run folder keeps for an opponent."""
    disk: float
    """Bytes of the checkpoints and the opponents."""
    divided: int = 1
    """The number of ranks that divide a micro-batch."""

    @property
    def learner(self) -> RankMemory:
        """The memory of the learner's ranks."""
        model = self.model
        return RankMemory(self.memory, model.source, model.passes, model.sharded, model.gathered, self.divided)

    def lines(self) -> list[str]:
        """Return the estimate as lines of text."""
        total, model, learner = sum(self.memory.values()), self.model, self.learner
        possible = [ranks for ranks in _RANKS if not ranks % self.divided] or [self.divided]
        shares = ", ".join(f"{in_bytes(learner.on_each_of(ranks))} on each of {ranks}" for ranks in possible)
        reason = f": {model.reason}" if model.reason else ""
        unknown = "" if model.passes is not None else f" (without activations, which are not known here{reason})"
        kept = f", opponents {in_bytes(self.opponents)}" if self.opponents else ""
        return [
            f"model       {model.parameters / 1e6:,.1f} M parameters ({model.source}), {model.trained / 1e6:,.1f} M trained",
            f"memory      {in_bytes(total)}: {learner.named_parts()}{unknown}",
            f"            sharded over ranks: {shares}",
            *([f"host        {in_bytes(self.host)}: optimizer"] if self.host else []),
            f"per step    {self.episodes:,} episodes of at most {self.turns} turns; at most {self.tokens:,} tokens sampled",
            f"per run     at most {self.run_tokens:,} tokens",
            f"disk        {in_bytes(self.disk)}: checkpoints of {in_bytes(self.checkpoint)} each{kept}",
        ]


def estimate(config: TrainConfig) -> RunEstimate:
    """Estimate what ``config`` needs."""
    load_parts(config)
    config.check_devices()
    TrainingTasks(config)  # raises if an evaluation holds out everything
    turns = [_turns(config, step) for step in range(config.steps)]
    model = model_size(config, turns[-1])
    checkpoint = model.trained * FLOAT * (1 + MOMENTS)
    kept = _kept_opponents(config)
    opponents = (kept + 1 if kept else 0) * model.parameters * _BYTES[config.engine.dtype]  # as with checkpoints
    episodes = config.play.tasks * config.play.group_size
    return RunEstimate(
        model=model,
        memory=_memory(config, model),
        host=model.trained * FLOAT * MOMENTS if _is_offloaded(config) else 0.0,
        episodes=episodes,
        turns=turns[-1],
        tokens=episodes * turns[-1] * config.play.max_tokens,
        run_tokens=sum(episodes * most * config.play.max_tokens for most in turns),
        checkpoint=checkpoint,
        opponents=opponents,
        disk=checkpoint * (config.keep + 1) + opponents,  # a new one is written before the oldest is deleted
        divided=config.learner.context_parallel,
    )


def model_size(config: TrainConfig, turns: int) -> ModelSize:
    """Return the size of the model of ``config``, whose episodes have at most ``turns`` turns."""
    from palestra.training.learner.planning import plan_memory

    path = config.model.path
    if path.startswith(("tiny:", "tiny-words:")):
        small = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
        settings, source = _llama(**small, num_attention_heads=4, num_key_value_heads=2, head_dim=16), "about"
    elif path == "smollm2":
        settings, source = _llama(), "known"
    else:
        settings, source = _settings(path), "counted"
    if settings is None:
        return _by_name(config)
    longest = getattr(settings.get_text_config(), "max_position_embeddings", None)
    try:
        planned = plan_memory(config.model, settings, _largest_micro_batch(config, turns, longest))
    except Unsupported as error:
        return msgspec.structs.replace(_by_name(config), reason=str(error))
    return ModelSize(planned.parameters, source, planned.trained, planned.passes, planned.sharded, planned.gathered)


def _llama(**changes: Any) -> Any:
    """The configuration of SmolLM2-135M, with ``changes``."""
    import transformers

    shape = {"vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64}
    return transformers.LlamaConfig(**{**shape, **heads, "tie_word_embeddings": True, **changes})


def _settings(path: str) -> Any:
    """The configuration of the model at ``path``, without its weights; ``None`` if it cannot be read here."""
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError):
        return None


def _by_name(config: TrainConfig) -> ModelSize:
    stated = re.findall(r"(\d+(?:\.\d+)?)([mb])(?![a-z])", config.model.path.lower())
    if not stated:
        return ModelSize(0.0, "its size is not known here")
    number, unit = stated[-1]
    parameters = float(number) * {"m": 1e6, "b": 1e9}[unit]
    lora = config.model.lora
    if lora is None:
        return ModelSize(parameters, "by its name", parameters)
    published = [shape for name, shape in _PUBLISHED.items() if name in config.model.path.lower()]
    layers = published[0] if published else _Layers.typical(parameters)
    return ModelSize(parameters, "by its name", layers.adapters(lora.rank, lora.targets))


class _Layers(NamedTuple):
    """The shape of the layers of a dense transformer."""

    depth: int
    hidden: int
    heads: int
    """The width of the queries."""
    shared: int
    """The width of the keys, and of the values."""
    between: int
    """The width inside the feed-forward part."""

    @classmethod
    def typical(cls, parameters: float) -> "_Layers":
        """The usual proportions: 128 times as wide as deep, a feed-forward part 8/3 as wide, 12 · width² parameters per layer.

        For Qwen and Llama models of 0.5 to 70 billion parameters, the adapters of such layers are within 20 % of the real ones.
        """
        width = round((128 * parameters / 12) ** (1 / 3))
        return cls(max(1, round(width / 128)), width, width, width, round(8 / 3 * width))

    def adapters(self, rank: int, targets: str | tuple[str, ...]) -> float:
        """The number of parameters of adapters of this rank: rank · (inputs + outputs) of every layer that gets one."""
        attention = {"q_proj": self.heads, "k_proj": self.shared, "v_proj": self.shared, "o_proj": self.heads}
        forward = dict.fromkeys(("gate_proj", "up_proj", "down_proj"), self.between)
        chosen = (targets,) if isinstance(targets, str) else targets
        widths = {**attention, **forward}.items()
        sizes = [self.hidden + width for name, width in widths if "all-linear" in chosen or name in chosen]
        return float(rank * self.depth * sum(sizes))


_PUBLISHED = {"qwen2.5-7b": _Layers(28, 3584, 3584, 512, 18944), "qwen3-4b": _Layers(36, 2560, 4096, 1024, 9728)}
"""The models of the shipped recipes, whose configuration may not be on this machine."""


def _largest_micro_batch(config: TrainConfig, turns: int, longest: int | None) -> "MicroBatchShape":
    """The largest micro-batch that the packer makes of one update's episodes; the model has at most ``longest`` positions."""
    from palestra.training.learner.planning import MicroBatchShape

    packing, sampled = config.learner.packing, turns * config.play.max_tokens
    shots = config.prompt.shots * turns * _SHOWN
    length = shots + 2 * sampled
    if longest is not None and length > longest:
        shots = min(shots, longest // 2)
        length, sampled = longest, min(sampled, longest - shots)
    episodes = -(-config.play.tasks * config.play.group_size // config.minibatches)
    fitting = min(max(packing.positions // length, 1), episodes)
    shared = config.model.share_prefix and fitting > 1 and shots >= WORTH_SHARING
    packed, divided = packing.layout == "packed", config.learner.context_parallel
    return MicroBatchShape(fitting, length, sampled, packed, shots if shared else 0, divided)


def _memory(config: TrainConfig, model: ModelSize) -> dict[str, float]:
    memory = {
        "weights": model.parameters * FLOAT,
        "gradients": model.trained * FLOAT,
    }
    if not _is_offloaded(config):
        memory["optimizer"] = model.trained * FLOAT * MOMENTS
    if config.needs_reference and config.model.lora is None:
        memory["reference"] = model.parameters * FLOAT
    if model.passes is not None:
        memory["activations"] = model.passes
    if config.engine.name == "local":
        memory["engine"] = model.parameters * _BYTES[config.engine.dtype]
        if _kept_opponents(config):
            memory["opponent"] = memory["engine"]
    return memory


def _kept_opponents(config: TrainConfig) -> int:
    """Return how many earlier versions of the model the run folder holds."""
    if config.opponent is None or config.opponent.name != "past":
        return 0
    return config.opponent.kept(config.keep * config.checkpoint_every)


def _is_offloaded(config: TrainConfig) -> bool:
    """Whether the optimizer is in another memory than the learner."""
    return config.learner.offload and not config.model.device.startswith("cpu")


def _turns(config: TrainConfig, step: int) -> int:
    """The most turns that an episode of ``step`` may have, assuming that every gate of a horizon is open."""
    limits = []
    for env in config.envs:
        limit: Any = spec(env).max_turns
        if config.horizon is None:
            limits.append(limit)
            continue
        longest = _longest(schedule_of(config.horizon, env), step)
        limits.append(longest if limit is None else min(longest, limit))
    return max((limit for limit in limits if limit is not None), default=1)


def _longest(schedule: Schedule, step: int) -> int:
    """The most turns that ``schedule`` may allow at ``step``, whatever the outcomes of the steps before it are."""
    most: int | None = None if isinstance(schedule, Fixed | Linear | Stepwise) else getattr(schedule, "longest", None)
    return turns_at(schedule, step) if most is None else most
