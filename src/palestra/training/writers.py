"""Other people's dashboards. ``metrics.jsonl`` is always written; these get the same numbers under the same names.

A writer is called with a step's metrics, and closed at the end. After a crash a run goes on at an earlier step than it had
shown: TensorBoard is told to forget what came later, W&B keeps what it was told first.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from palestra.errors import MissingExtra
from palestra.training.config import TrainConfig

__all__ = ["tensorboard_writer", "wandb_writer"]

Write = Callable[[Mapping[str, Any]], None]


def tensorboard_writer(folder: Path, config: TrainConfig, closing: ExitStack) -> Write:
    """Write event files into ``folder/tensorboard`` until ``closing`` closes."""
    _need("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    writers: list[Any] = []

    def write(metrics: Mapping[str, Any]) -> None:
        if not writers:  # made at the first step: only now is it known what was forgotten
            writers.append(SummaryWriter(str(folder / "tensorboard"), purge_step=metrics["step"]))
            closing.callback(writers[0].close)
            writers[0].add_text("config", f"```json\n{msgspec.json.format(msgspec.json.encode(config)).decode()}\n```")
        for name, value in _numbers(metrics).items():
            writers[0].add_scalar(name, value, metrics["step"])
        writers[0].flush()

    return write


def wandb_writer(folder: Path, config: TrainConfig, closing: ExitStack, project: str) -> Write:
    """Log to W&B, or into ``folder/wandb`` with ``WANDB_MODE=offline``. The same folder is the same run."""
    wandb = _need("wandb")
    name = str(folder.resolve())
    run = wandb.init(
        project=project,
        dir=str(folder),
        name=folder.name,
        id=hashlib.blake2b(name.encode(), digest_size=8).hexdigest(),
        resume="allow",
        config=msgspec.to_builtins(config),
    )
    closing.callback(run.finish)

    def write(metrics: Mapping[str, Any]) -> None:
        run.log(_numbers(metrics), step=metrics["step"])

    return write


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if isinstance(value, int | float) and name != "step"}


def _need(package: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError:
        raise MissingExtra(f'{package} is not installed: pip install "palestra[track]"') from None
