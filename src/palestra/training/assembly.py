"""Build a trainer from a configuration: environments, model, warm start, learner, engine and policy.

``parts.load_parts`` turns the names in the configuration into parts, once per trainer; what is built here gets these parts and
the tables of options that are its own.

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
from palestra.policies import as_policy
from palestra.policies.sampled import SampledPolicy
from palestra.recipes.config import TrainConfig
from palestra.training.learner.learner import Learner
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import ActorCritic
from palestra.training.learner.ranks import Leader
from palestra.training.opponent_setup import OpponentSetup
from palestra.training.opponents import OpponentInSomeTasks
from palestra.training.parts import RunParts, engine_setup, load_parts
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
    parts, tasks = _parts_and_tasks(config)
    path = _first_model(config, folder, say)
    learner = build_learner(config, path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    sampling = Sampling(max_tokens=config.play.max_tokens, temperature=config.learner.temperature)
    engine = engine or parts.engine(engine_setup(config, path, folder, tokenizer, say))
    sampled = SampledPolicy(renderer_of(config.prompt, tokenizer), engine, sampling, **prompt_options(config.prompt))
    trainer = Trainer(config, parts, tasks, learner, sampled, folder, show=show, say=say)
    if config.opponent is not None and parts.opponent is not None:
        opponent = as_policy(parts.opponent(OpponentSetup(config, path, folder, sampled)))
        trainer.opponents = OpponentInSomeTasks(config.opponent, config.seed, trainer.policy, opponent)
    write_vocabulary(Inside(trainer.folder), tokenizer)
    return trainer


def build_engine(config: TrainConfig, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> Engine:
    """Build the engine that the recipe names, for a trainer that ``assemble`` builds later."""
    parts, _ = _parts_and_tasks(config)
    path = _first_model(config, folder)
    return parts.engine(engine_setup(config, path, folder, transformers.AutoTokenizer.from_pretrained(path), say))


def first_model(config: TrainConfig, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> str:
    """Return the path of the model that the first step starts from: the recipe's, or the result of its warm start."""
    _parts_and_tasks(config)
    return _first_model(config, folder, say)


def _parts_and_tasks(config: TrainConfig) -> tuple[RunParts, TrainingTasks]:
    """Load what the recipe names. What is wrong with it is found here, before a model is loaded."""
    parts = load_parts(config)
    config.check_devices()
    return parts, TrainingTasks(config)


def _first_model(config: TrainConfig, folder: Path, say: Callable[[str], None] = lambda _: None) -> str:
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
        kind = torch.device(device).type
    except RuntimeError:
        raise UsageError(f'{key} = "{device}" is not a device: use "cpu", "cuda" or "cuda:1"') from None
    if kind == "cuda" and not torch.cuda.is_available():
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
    teacher = str(find_model(config.teacher.path))
    _check_model(teacher, "teacher.path")
    tokens, teacher_tokens = (transformers.AutoTokenizer.from_pretrained(model).get_vocab() for model in (path, teacher))
    if differing := [token for token, id in tokens.items() if teacher_tokens.get(token) != id]:
        raise UsageError(
            f'teacher.path = "{config.teacher.path}" has other tokens than the model: {len(differing)} of {len(tokens)} '
            f"differ, such as {differing[0]!r}. Distillation compares the two token by token: take a teacher of the same family"
        )
    return teacher


def _load_teacher(config: TrainConfig, path: str) -> ActorCritic | None:
    teacher = _find_teacher(config, path)
    if teacher is None:
        return None
    return load_model(msgspec.structs.replace(config.model, path=teacher, lora=None, critic=False, share_prefix=False))


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
