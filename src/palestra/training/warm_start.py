"""Warm start: supervised learning before the first step, from episodes that a teacher plays in the run's environments.

The result is a model folder in the run folder. It is renamed into place when it is complete, and a resumed run uses it again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
import transformers
from safetensors import safe_open

from palestra.core import Sampling
from palestra.durable import Inside
from palestra.errors import SchemaError, UsageError
from palestra.foundation.references import parse_hook
from palestra.foundation.seeding import derive, derive_seed
from palestra.policies import as_policy
from palestra.recipes.config import TrainConfig
from palestra.recipes.model import ModelConfig
from palestra.recipes.play import DEMONSTRATOR, WarmStart
from palestra.rollouts import collect
from palestra.training.imitation import TaughtPolicy, imitate
from palestra.training.learner.learner import Learner
from palestra.training.learner.loading import load_model
from palestra.training.prompts import prompt_options, renderer_of
from palestra.training.tasks import TrainingTasks
from palestra.trajectory import Task, Trajectory

__all__ = ["WARM_START", "finished_warm_start", "warm_start"]

WARM_START = "warm-start"
"""The name of the folder in the run folder."""


def finished_warm_start(inside: Inside) -> Path:
    """Return the folder, or raise ``SchemaError`` if it is not a model folder, and ``UsageError`` if a link is in it."""
    folder = inside.checked_tree()
    if not any(folder.glob("model*.safetensors")):  # without this check transformers would look for pickled weights
        raise SchemaError(f"{folder} holds no model.safetensors: remove the folder to repeat the warm start")
    try:
        transformers.AutoConfig.from_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(folder)
        for file in folder.glob("model*.safetensors"):
            with safe_open(file, framework="pt"):
                pass
    except Exception as error:  # transformers and tokenizers raise what they like
        raise SchemaError(f"{folder} is damaged ({error}): remove the folder to repeat the warm start") from error
    return folder


def warm_start(
    config: TrainConfig, settings: WarmStart, path: str, folder: Path | Inside, *, say: Callable[[str], None] = lambda _: None
) -> Path:
    """Train the model at ``path`` to imitate the teacher, and return the folder of the result. A finished one is reused.

    Raises:
        UsageError: The teacher finished no episode of an environment; the message says why.

    """
    folder = folder if isinstance(folder, Inside) else Inside(folder.parent) / folder.name
    if folder.exists():
        return finished_warm_start(folder)
    torch.manual_seed(derive_seed(config.seed, "torch", "warm start"))
    network = load_model(ModelConfig(path, device=config.model.device))
    # ``decay`` counts the updates of the run, and these come before it. One process makes them.
    pace = msgspec.structs.replace(config.learner, learning_rate=settings.learning_rate, decay=None, context_parallel=1)
    learner = Learner(network, pace)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    teacher = TaughtPolicy(
        as_policy(DEMONSTRATOR.load(settings.teacher)()),
        renderer_of(config.prompt, tokenizer),
        encode,
        network.language_model.config.max_position_embeddings,
        sampling=Sampling(max_tokens=config.play.max_tokens),
        **prompt_options(config.prompt),
    )
    seed = derive_seed(config.seed, "warm start")
    play = config.play
    played = collect(
        _tasks(config, settings.episodes, seed),
        teacher,
        seed=seed,
        concurrency=play.concurrency,
        deadline=play.deadline,
        retries=play.retries,
        progress=False,
    )
    lessons = _usable(played, settings, say)
    rng: np.random.Generator = derive(config.seed, "warm start minibatches")
    imitate(learner, lessons, epochs=settings.epochs, minibatches=settings.minibatches, rng=rng)
    part = folder.with_name(f"{folder.name}.part")
    part.remove()  # a killed process may have left it
    part.mkdir()
    model = network.language_model
    model.save_pretrained(part.checked())
    tokenizer.save_pretrained(part.checked())
    return part.rename(folder.name).path


def _tasks(config: TrainConfig, count: int, seed: int) -> list[Task]:
    """The environments in turn, whatever their weights: the model must learn the form of every one."""
    names, drawing = list(config.envs), TrainingTasks(config)
    turns = ((names[k % len(names)], k // len(names)) for k in range(count))
    return [drawing.task(env, derive_seed(seed, "task", env, turn), turn) for env, turn in turns]


def _usable(played: Sequence[Trajectory], settings: WarmStart, say: Callable[[str], None]) -> list[Trajectory]:
    """Return the episodes that can be imitated. Raise if an environment has none, and pass a note on the others to ``say``."""
    kept = [trajectory for trajectory in played if not trajectory.stop.failed and trajectory.segments]
    played_in = Counter(trajectory.task.env for trajectory in played)
    kept_in = Counter(trajectory.task.env for trajectory in kept)
    causes: dict[str, str] = defaultdict(lambda: "the model's context is too short for the first prompt")
    causes |= {
        trajectory.task.env: trajectory.failures[-1].message for trajectory in reversed(played) if trajectory.stop.failed
    }
    for env in played_in:
        if not kept_in[env]:
            teacher, _ = parse_hook(DEMONSTRATOR.key, settings.teacher)
            other = "random" if teacher == "oracle" else "oracle"
            raise UsageError(
                f'warm_start.teacher = "{teacher}" finished no episode of {env}: {causes[env].rstrip(".")}. '
                f'Otherwise use warm_start.teacher = "{other}", or leave out the warm start: warm_start=none'
            )
        if (count := played_in[env] - kept_in[env]) > 0:
            say(f"warm start: {count} of {played_in[env]} episodes of {env} are left out: {causes[env]}")
    return kept
