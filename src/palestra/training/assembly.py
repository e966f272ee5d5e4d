"""Build a trainer from a configuration: environments, model, warm start, learner, engine and policy.

The learner runs in this process, alone or as the leader of other ranks (``ranks``). Whatever the engine is, it receives the
weights before the first episode and after every step.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import transformers

from palestra.core import Engine, Sampling
from palestra.durable import Inside
from palestra.errors import UsageError
from palestra.foundation.seeding import derive_seed
from palestra.inference.models import find_model
from palestra.inference.rendering.vocabulary import write_vocabulary
from palestra.policies.sampled import SampledPolicy
from palestra.recipes.config import TrainConfig
from palestra.recipes.engine import ENGINE
from palestra.training.learner.learner import Learner
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import ActorCritic
from palestra.training.learner.ranks import Leader
from palestra.training.opponent_setup import OpponentSetup, opponents_of
from palestra.training.parts import check_parts, engine_setup
from palestra.training.prompts import prompt_options, renderer_of
from palestra.training.tasks import TrainingTasks
from palestra.training.trainer import Trainer
from palestra.training.warm_start import WARM_START, warm_start

__all__ = [
    "assemble",
    "build_engine",
    "build_learner",
    "first_model",
]


def assemble(
    config: TrainConfig,
    folder: Path,
    *,
    engine: Engine | None = None,
    show: Callable[[Mapping[str, Any]], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Trainer:
    """Build the trainer of ``config`` in ``folder``, after its warm start. ``engine`` replaces the recipe's engine."""
    path = first_model(config, folder, say=say)
    learner = build_learner(config, path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    sampling = Sampling(max_tokens=config.play.max_tokens, temperature=config.learner.temperature)
    engine = engine or build_engine(config, folder, say=say)
    sampled = SampledPolicy(renderer_of(config.prompt, tokenizer), engine, sampling, **prompt_options(config.prompt))
    trainer = Trainer(config, learner, sampled, folder, show=show, say=say)
    trainer.opponents = opponents_of(OpponentSetup(config, path, folder, sampled), trainer.policy)
    write_vocabulary(Inside(trainer.folder), tokenizer)
    return trainer


def build_engine(config: TrainConfig, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> Engine:
    """Build the engine that the recipe names."""
    path = first_model(config, folder)
    engine: Engine = ENGINE.load(config.engine.kind)(
        engine_setup(config, path, folder, transformers.AutoTokenizer.from_pretrained(path), say)
    )
    return engine


def first_model(config: TrainConfig, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> str:
    """Return the path of the model that the first step starts from: the recipe's, or the result of its warm start."""
    check_parts(config)
    config.check_devices()
    TrainingTasks(config)  # raises if an evaluation holds out everything, before a model is loaded
    _check_device("model.device", config.model.device)
    if config.engine.name == "local":
        _check_device("engine.device", config.engine_device)
    path = find_model(config.model.path)
    _check_model(str(path), "model.path")
    _find_teacher(config, str(path))  # raises before the warm start
    if config.warm_start is None:
        return str(path)
    return str(warm_start(config, config.warm_start, str(path), Inside(folder) / WARM_START, say=say))


def _check_device(key: str, device: str) -> None:
    try:
        known = torch.device(device).type
    except RuntimeError:
        raise UsageError(f'{key} = "{device}" is not a device: use "cpu", "cuda" or "cuda:1"') from None
    if known == "cuda" and not torch.cuda.is_available():
        raise UsageError(f'{key} = "{device}", but torch finds no CUDA device: use {key}=cpu, or install torch with CUDA')


def _check_model(path: str, key: str) -> None:
    try:
        transformers.AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        what = str(error).partition("\n")[0]
        raise UsageError(
            f'{key} = "{path}" cannot be loaded ({what}). Give a folder with a config.json, a name on the Hugging Face '
            "hub, smollm2, tiny:ID or tiny-words:ID"
        ) from None


def _find_teacher(config: TrainConfig, path: str) -> str | None:
    """Return the model of the local teacher, whose tokens must be those of the model at ``path``; ``None`` without one."""
    if config.teacher is None or config.teacher.name != "local":
        return None
    found = str(find_model(config.teacher.path))
    _check_model(found, "teacher.path")
    own, other = (transformers.AutoTokenizer.from_pretrained(one).get_vocab() for one in (path, found))
    if differing := [token for token, place in own.items() if other.get(token) != place]:
        raise UsageError(
            f'teacher.path = "{config.teacher.path}" has other tokens than the model: {len(differing)} of {len(own)} differ, '
            f"such as {differing[0]!r}. Distillation compares the two token by token: take a teacher of the same family"
        )
    return found


def _load_teacher(config: TrainConfig, path: str) -> ActorCritic | None:
    found = _find_teacher(config, path)
    if found is None:
        return None
    return load_model(msgspec.structs.replace(config.model, path=found, lora=None, critic=False, share_prefix=False))


def build_learner(config: TrainConfig, path: str) -> Learner:
    """Build the learner of the model at ``path``: a ``Leader`` if this process is rank 0 of several."""
    # Seeded after the warm start, so that a process that finds the warm start finished continues with the same random numbers
    # as the process that made it. All ranks draw the same new weights, and each keeps its rows.
    torch.manual_seed(derive_seed(config.seed, "torch"))
    settings = msgspec.structs.replace(config.model, path=path)
    reference = None
    if config.needs_reference and settings.lora is None:
        reference = load_model(msgspec.structs.replace(settings, critic=False))
    kind = Leader if dist.is_initialized() and dist.get_rank() == 0 else Learner
    learner = kind(load_model(settings), config.learner, reference=reference, teacher=_load_teacher(config, path))
    learner.measures_first = config.measures_first
    return learner
