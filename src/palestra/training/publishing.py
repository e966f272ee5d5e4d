"""New weights for engines in other processes: a model folder per version, on a file system that they share with the learner.

::

    run/weights/version-00000012/   config.json  model.safetensors  tokenizer…

A version is renamed into place when it is complete, so a reader never sees half of one. The version before it stays, because a
server that recovers late may still be loading it. After a crash the learner writes its current version again.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["WEIGHTS", "PublishedWeights"]

WEIGHTS = "weights"
"""The name of the folder in the run folder."""
_KEPT = 2


class PublishedWeights(NamedTuple):
    """The folder of versions. It can be sent to other processes."""

    folder: str
    model: str
    """The model whose configuration and tokenizer every version has."""
    dtype: str = "float32"
    """The data type of the published weights."""

    def write(self, weights: Mapping[str, Any], version: int) -> Path:
        """Publish ``weights`` as ``version`` and return the version's folder. Later versions and all but the last two go."""
        import torch
        import transformers
        from safetensors.torch import save_file

        folder = Path(self.folder)
        final = folder / f"version-{version:08d}"
        part = folder / f".{final.name}"
        shutil.rmtree(part, ignore_errors=True)
        config = transformers.AutoConfig.from_pretrained(self.model)
        config.dtype = getattr(torch, self.dtype)
        config.save_pretrained(part)
        transformers.AutoTokenizer.from_pretrained(self.model).save_pretrained(part)
        save_file(_distinct(weights, config.dtype), part / "model.safetensors", metadata={"format": "pt"})
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


def _distinct(weights: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """Keep each tensor under one name: safetensors cannot hold tied weights, which are one tensor under two names."""
    seen: dict[int, str] = {}
    for name, tensor in weights.items():
        seen.setdefault(tensor.data_ptr(), name)
    return {name: weights[name].detach().cpu().to(dtype).contiguous() for name in seen.values()}
