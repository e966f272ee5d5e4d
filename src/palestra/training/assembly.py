"""From a configuration to a trainer: the environments, the model, its warm start, the learner, the engine and the policy.

The learner is in this process, alone or as the leader of others (``ranks``). The engine is a copy of the model in this
process, or servers; either receives the weights after every step.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import torch.distributed as dist
import transformers

from palestra.core import Engine, Renderer, Sampling
from palestra.engines.hf import HFEngine
from palestra.engines.sglang import SGLangEngine
from palestra.engines.vllm import VLLMEngine
from palestra.models import find_model
from palestra.policies import as_policy
from palestra.policies.history import FullHistory, History, LastObservation, Summary, Window
from palestra.policies.sampled import SampledPolicy
from palestra.policies.shots import NoShots, OracleShots
from palestra.registry import register, spec
from palestra.rendering import renderer_for
from palestra.rollout import collect
from palestra.seeding import derive, derive_seed
from palestra.training.config import PromptSettings, TrainConfig, Variant, WarmStart
from palestra.training.imitation import TaughtPolicy, VariedPolicy, imitate
from palestra.training.learner import Learner
from palestra.training.model import ModelConfig, load_model
from palestra.training.ranks import Leader
from palestra.training.served import ServedEngine
from palestra.training.trainer import Evaluate, Trainer
from palestra.wrappers.rewording import Wording

__all__ = [
    "assemble",
    "build_learner",
    "first_model",
    "prompt_options",
    "register_variants",
    "renderer_of",
    "train",
    "warm_start",
]


def train(
    config: TrainConfig,
    folder: str | Path,
    *,
    evaluate: Evaluate | None = None,
    show: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Trainer:
    """Run ``config`` in ``folder``, from the beginning or from where an earlier run of it was stopped, to its end."""
    trainer = assemble(config, Path(folder), evaluate=evaluate, show=show)
    asyncio.run(trainer.train())
    return trainer


def assemble(
    config: TrainConfig,
    folder: Path,
    *,
    evaluate: Evaluate | None = None,
    show: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Trainer:
    """The trainer of ``config`` in ``folder``, after its warm start if it has one."""
    path = first_model(config, folder)
    learner = build_learner(config, path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    sampling = Sampling(max_tokens=config.play.max_tokens, temperature=config.learner.temperature)
    engine = _engine(config, path, folder, tokenizer)
    policy = SampledPolicy(renderer_of(config.prompt, tokenizer), engine, sampling, **prompt_options(config.prompt))
    trainer = Trainer(config, learner, policy, folder, evaluate=evaluate, show=show)
    trainer.record.name_tokens(tokenizer.decode, len(tokenizer))
    return trainer


def first_model(config: TrainConfig, folder: Path) -> str:
    """The model that the first step begins with: the recipe's, after its warm start if it has one."""
    register_variants(config.variants)
    path = find_model(config.model.path)
    return str(path if config.warm_start is None else warm_start(config, config.warm_start, str(path), folder / "warm-start"))


def build_learner(config: TrainConfig, path: str) -> Learner:
    """The learner of the model at ``path``; the leader of several where this process has joined others as rank 0."""
    # After the warm start: a life of the run that finds it made must go on with the same generator as one that made it. The
    # same on all ranks: each keeps its share of what it has drawn for new weights.
    torch.manual_seed(derive_seed(config.seed, "torch"))
    settings = msgspec.structs.replace(config.model, path=path)
    reference = None
    if config.needs_reference and settings.lora is None:
        reference = load_model(msgspec.structs.replace(settings, critic=False))
    kind = Leader if dist.is_initialized() and dist.get_rank() == 0 else Learner
    return kind(load_model(settings), config.learner, reference=reference)


def register_variants(variants: Mapping[str, Variant]) -> None:
    """Register the environments that a recipe makes up out of others."""
    for id, variant in variants.items():
        base = spec(variant.base)
        wording = Wording(variant.move, variant.observations)
        register(
            id,
            base.entry,
            kwargs={**base.kwargs, **variant.options},
            tags=base.tags,
            needs=base.needs,
            wrappers=(*base.wrappers, *([wording] if variant.move or variant.observations else [])),
            description=base.description,
        )


def renderer_of(settings: PromptSettings, tokenizer: Any) -> Renderer:
    """The renderer that the prompts of a run are made with, proven on ``tokenizer``."""
    return renderer_for(tokenizer, family=settings.family, append_only=settings.append_only)


def prompt_options(settings: PromptSettings) -> dict[str, Any]:
    """``settings`` as the options of ``SampledPolicy``."""
    histories: dict[str, Callable[[], History]] = {
        "full": FullHistory,
        "window": lambda: Window(settings.window),
        "last": LastObservation,
        "summary": lambda: Summary(settings.window),
    }
    shots = OracleShots(settings.shots) if settings.shots else NoShots()
    return {"history": histories[settings.history](), "shots": shots}


def _engine(config: TrainConfig, path: str, folder: Path, tokenizer: Any) -> Engine:
    settings = config.engine
    if settings.kind == "local":
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, settings.dtype))
        return HFEngine(model.to(settings.device), decode=tokenizer.decode, batch=settings.batch, rows=settings.rows)
    dialect = VLLMEngine if settings.kind == "vllm" else SGLangEngine
    return ServedEngine(dialect(settings.urls, timeout=config.play.deadline), path, folder / "weights", settings.dtype)


def warm_start(config: TrainConfig, settings: WarmStart, path: str, folder: Path) -> Path:
    """The model at ``path`` after imitating the teacher, as a model folder; made once, and complete or absent."""
    if folder.exists():
        return folder
    torch.manual_seed(derive_seed(config.seed, "torch", "warm start"))
    network = load_model(ModelConfig(path, device=config.model.device))
    # The decay counts the updates of the run, which has not begun.
    pace = msgspec.structs.replace(config.learner, learning_rate=settings.learning_rate, decay=None)
    learner = Learner(network, pace)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    teacher = TaughtPolicy(
        VariedPolicy() if settings.teacher == "varied" else as_policy(settings.teacher),
        renderer_of(config.prompt, tokenizer),
        encode,
        network.language_model.config.max_position_embeddings,
        sampling=Sampling(max_tokens=config.play.max_tokens),
        **prompt_options(config.prompt),
    )
    seed = derive_seed(config.seed, "warm start")
    lessons = collect(list(config.envs), teacher, n=settings.episodes, seed=seed, progress=False)
    rng: np.random.Generator = derive(config.seed, "warm start minibatches")
    imitate(learner, lessons, epochs=settings.epochs, minibatches=settings.minibatches, rng=rng)
    part = folder.with_name(f"{folder.name}.part")
    model = network.language_model
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    part.rename(folder)
    return folder
