"""New weights for engines in other processes: a model folder per version, on a file system that they share with the learner.

::

    run/weights/version-00000012/   config.json  model-00000-00000.safetensors  model.safetensors.index.json  tokenizer…

The files have the names and shapes of the model's checkpoint, so every server that loads the model loads them. All ranks of the
learner write their part. A version is renamed into place when it is complete, so a reader never sees half of one. The version
before it stays, because a server that recovers late may still be loading it. After a crash the learner writes its current
version again.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from palestra.training.learner.learner import Learner

__all__ = ["WEIGHTS", "PolicyWeights", "PublishedWeights"]

WEIGHTS = "weights"
"""The name of the folder in the run folder."""
_KEPT = 2


class PolicyWeights:
    """The learner's weights, as an engine receives them. Nothing is gathered or copied before the engine asks for it."""

    def __init__(self, learner: "Learner") -> None:
        self._learner = learner

    def items(self) -> "Iterator[tuple[str, Tensor]]":
        """Yield names and tensors one at a time, under the names of the model in memory, with adapters merged."""
        return self._learner.weights()

    def write(self, folder: Path, dtype: str = "bfloat16") -> None:
        """Write safetensors with the names of the model's checkpoint into ``folder``, which must exist."""
        self._learner.write_weights(folder, dtype)


class PublishedWeights(NamedTuple):
    """The folder of versions. It can be sent to other processes."""

    folder: str
    model: str
    """The model whose configuration and tokenizer every version has."""
    dtype: str = "float32"
    """The data type of the published weights."""

    def write(self, weights: PolicyWeights, version: int) -> Path:
        """Publish ``weights`` as ``version`` and return the version's folder. Later versions and all but the last two go."""
        import torch
        import transformers

        folder = Path(self.folder)
        final = folder / f"version-{version:08d}"
        part = folder / f".{final.name}"
        shutil.rmtree(part, ignore_errors=True)
        config = transformers.AutoConfig.from_pretrained(self.model)
        config.dtype = getattr(torch, self.dtype)
        config.save_pretrained(part)
        transformers.AutoTokenizer.from_pretrained(self.model).save_pretrained(part)
        weights.write(part, self.dtype)
        for late in [path for path in self._versions() if path.name >= final.name]:  # of a process that got further and died
            shutil.rmtree(late)
        part.rename(final)
        for old in self._versions()[:-_KEPT]:
            shutil.rmtree(old)
        return final.resolve()

    def newest(self) -> tuple[Path, int] | None:
        """Return the newest version's folder and its number; ``None`` if nothing is published yet."""
        versions = self._versions()
        return (versions[-1], int(versions[-1].name.rpartition("-")[2])) if versions else None

    def _versions(self) -> list[Path]:
        return sorted(Path(self.folder).glob("version-*"))
