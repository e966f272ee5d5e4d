"""Metrics for other programs. ``metrics.jsonl`` is always written; a writer gets the same numbers under the same names.

A writer is called with the metrics of every step. If it has a ``close`` method, that is called at the end of the run. After a
crash a run resumes at an earlier step than the last one it reported: TensorBoard discards the later steps, W&B keeps their
first values.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from palestra.errors import MissingExtra
from palestra.foundation.installation import how_to_install
from palestra.recipes.config import TrainConfig
from palestra.recipes.play import WRITER
from palestra.recipes.reading import recorded

__all__ = ["TensorBoardWriter", "WandbWriter", "Write", "writing"]

Write = Callable[[Mapping[str, Any]], None]


@contextmanager
def writing(config: TrainConfig, folder: Path, show: Write) -> Iterator[Write]:
    """Open the writers of ``config`` and yield a function that passes metrics to ``show`` and to all of them.

    ``folder`` is created first: on a cluster the process that claims it starts later.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as closing:
        writers: list[Write] = []
        for value in config.writers:
            writer = WRITER.load(value)(folder, config)
            writers.append(writer)
            closing.callback(getattr(writer, "close", lambda: None))

        def write(metrics: Mapping[str, Any]) -> None:
            for writer in (show, *writers):
                writer(metrics)

        yield write


class TensorBoardWriter:
    """Writes event files into ``folder/tensorboard``."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        _need("tensorboard")
        self._folder = folder
        self._config = msgspec.json.format(msgspec.json.encode(recorded(config))).decode()
        self._events: Any = None

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        if self._events is None:  # the first step of this process decides which events of an earlier one are discarded
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(self._folder / "tensorboard"), purge_step=metrics["step"])
            self._events.add_text("config", f"```json\n{self._config}\n```")
        for name, value in _numbers(metrics).items():
            self._events.add_scalar(name, value, metrics["step"])
        self._events.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._events is not None:
            self._events.close()


class WandbWriter:
    """Logs to the W&B project ``project``, or into ``folder/wandb`` with ``WANDB_MODE=offline``. A folder is one W&B run."""

    def __init__(self, folder: Path, config: TrainConfig, project: str) -> None:
        self._run: Any = _need("wandb").init(
            project=project,
            dir=str(folder),
            name=folder.name,
            id=hashlib.blake2b(str(folder.resolve()).encode(), digest_size=8).hexdigest(),
            resume="allow",
            config=msgspec.to_builtins(recorded(config)),
        )

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        self._run.log(_numbers(metrics), step=metrics["step"])

    def close(self) -> None:
        """Finish the W&B run."""
        self._run.finish()


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if isinstance(value, int | float) and name != "step"}


def _need(package: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError:
        raise MissingExtra(f"{package} is not installed: {how_to_install('track')}") from None
