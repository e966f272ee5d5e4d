"""New weights for engines in other processes: a model folder per version, on a file system that they share with the learner.

::

    run/weights/version-00000012/   config.json  model-00000-00000.safetensors  model.safetensors.index.json  tokenizer…
                                    adapter_config.json  adapter_model.safetensors    (instead, if only adapters are sent)

The files have the names and shapes of the model's checkpoint, so every server that loads the model loads them. All ranks of the
learner write their part. A version is renamed into place when it is complete, so a reader never sees half of one. The version
before it stays, because a server that recovers late may still be loading it. After a crash the learner writes its current
version again.

A ``Transfer`` decides what is published and how servers load it. The recipe names it in ``engine.transfer``.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from palestra.durable import Inside
from palestra.inference.servers.replica import LoraAdapter

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WEIGHTS", "PolicyWeights", "PublishedAdapters", "PublishedWeights", "Transfer", "WeightSource"]

WEIGHTS = "weights"
"""The name of the folder in the run folder."""
_KEPT = 2
_VERSION = re.compile(r"version-\d{8,}")
"""Other names in the folder of versions belong to the user and stay."""


class WeightSource(Protocol):
    """What has the newest weights: the learner."""

    def weights(self) -> "Iterator[tuple[str, Tensor]]": ...
    def checkpoint_weights(self, dtype: str) -> "Iterator[tuple[str, Tensor]]": ...
    def write_weights(self, folder: Path, dtype: str) -> None: ...
    def write_adapters(self, folder: Path, dtype: str) -> None: ...
    def release(self) -> None: ...


class PolicyWeights:
    """The learner's weights, as an engine receives them. Nothing is gathered or copied before the engine asks for it."""

    def __init__(self, learner: WeightSource) -> None:
        self._learner = learner

    def items(self) -> "Iterator[tuple[str, Tensor]]":
        """Yield names and tensors one at a time, under the names of the model in memory, with adapters merged."""
        return self._learner.weights()

    def checkpoint_items(self, dtype: str = "bfloat16") -> "Iterator[tuple[str, Tensor]]":
        """Yield names and tensors one at a time, under the names of the model's checkpoint, with adapters merged."""
        return self._learner.checkpoint_weights(dtype)

    def write(self, folder: Path, dtype: str = "bfloat16") -> None:
        """Write safetensors with the names of the model's checkpoint into ``folder``, which must exist."""
        self._learner.write_weights(folder, dtype)

    def write_adapters(self, folder: Path, dtype: str = "bfloat16") -> None:
        """Write the LoRA adapters alone into ``folder``, which must exist, as PEFT saves them."""
        self._learner.write_adapters(folder, dtype)

    def release(self) -> None:
        """Give the memory of the GPU that the learner holds without using it back to other processes."""
        self._learner.release()


class Transfer(Protocol):
    """How new weights get from the learner to the servers."""

    def write(self, weights: PolicyWeights, version: int) -> Any:
        """Publish ``weights`` as ``version``, and return what ``RemoteEngine.update_weights`` takes. Runs on a thread."""


class PublishedWeights(NamedTuple):
    """The folder of versions. It can be sent to other processes."""

    folder: str
    model: str
    """The model whose configuration and tokenizer every version has."""
    dtype: str = "float32"
    """The data type of the published weights."""
    kept: int = _KEPT
    """How many versions stay."""

    def write(self, weights: PolicyWeights, version: int) -> Path:
        """Publish ``weights`` as ``version`` and return the version's folder. Later versions and the oldest ones go."""
        import torch
        import transformers

        def fill(part: Path) -> None:
            config = transformers.AutoConfig.from_pretrained(self.model)
            config.dtype = getattr(torch, self.dtype)
            config.save_pretrained(part)
            transformers.AutoTokenizer.from_pretrained(self.model).save_pretrained(part)
            weights.write(part, self.dtype)

        return _published(Path(self.folder), version, fill, self.kept)

    def path_of(self, version: int) -> Path:
        """The folder of ``version``, whether it is there or not."""
        return _path_of(Path(self.folder).resolve(), version)

    def newest(self) -> tuple[Path, int] | None:
        """Return the newest version's folder and its number; ``None`` if nothing is published yet."""
        versions = _versions(Path(self.folder))
        return (versions[-1], int(versions[-1].name.rpartition("-")[2])) if versions else None


class PublishedAdapters(NamedTuple):
    """A folder of versions that hold LoRA adapters alone. Servers load them beside the weights of the initial model."""

    folder: str
    dtype: str = "float32"
    base: str = ""
    """The initial model, which servers load before the first adapter; empty if they hold it."""
    run: str = ""
    """The first part of the adapters' names on the servers. Servers cache prefixes by the name of the adapter, so every process
    of every run needs another one."""

    def write(self, weights: PolicyWeights, version: int) -> LoraAdapter:
        """Publish the adapters of ``weights`` as ``version``."""
        final = _published(Path(self.folder), version, lambda part: weights.write_adapters(part, self.dtype))
        return LoraAdapter(str(final), f"{self.run}-{final.name}" if self.run else final.name, self.base)


def _path_of(folder: Path, version: int) -> Path:
    return folder / f"version-{version:08d}"


def _published(folder: Path, version: int, fill: Callable[[Path], None], kept: int = _KEPT) -> Path:
    """Let ``fill`` write a version, and rename it into place. Later versions and all but the last ``kept`` go."""
    # The folder of versions is inside the run folder, which is its parent.
    versions = Inside(folder.parent) / folder.name
    final = _path_of(folder, version)
    part = versions / f".{final.name}"
    part.remove()
    part.mkdir()
    fill(part.checked())
    for late in [path for path in _versions(folder) if path.name >= final.name]:  # of a process that got further and died
        (versions / late.name).remove()
    part.rename(final.name)
    for old in _versions(folder)[:-kept]:
        (versions / old.name).remove()
    return final.resolve()


def _versions(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("version-*") if _VERSION.fullmatch(path.name) and not path.is_symlink())
