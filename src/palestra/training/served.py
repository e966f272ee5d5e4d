"""Servers as the engine of a run: they read every new version of the weights from a folder that they share with the trainer.

::

    run/weights/version-00000012/   config.json  model.safetensors  tokenizer…

A version is there whole or not at all, and the one before it stays: a server that comes back late may still be told to load it.
"""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
import transformers
from torch import Tensor

from palestra.core import Generation, Sampling, Session
from palestra.encoding import Ints
from palestra.engines.remote import RemoteEngine

__all__ = ["ServedEngine"]

_KEPT = 2


class ServedEngine:
    """An engine for ``Trainer``: takes weights as tensors and hands them to servers as a model folder."""

    def __init__(self, servers: RemoteEngine, model: str, folder: Path, dtype: str) -> None:
        self._servers = servers
        self._model = model
        self._folder = folder
        self._dtype: torch.dtype = getattr(torch, dtype)
        self.context_length = 0
        """Known once the servers have been asked, which ``update_weights`` does first."""

    @property
    def version(self) -> int:
        """That of the weights the servers have."""
        return self._servers.version

    async def generate(self, prompt: Ints, sampling: Sampling, session: Session | None = None) -> Generation:
        return await self._servers.generate(prompt, sampling, session)

    async def update_weights(self, source: Mapping[str, Tensor], version: int) -> None:
        if not self.context_length:
            await self._servers.connect()
            self.context_length = self._servers.context_length
        written = await asyncio.to_thread(self._write, source, version)
        await self._servers.update_weights(written, version)
        for old in sorted(self._folder.glob("version-*"))[:-_KEPT]:
            shutil.rmtree(old)

    async def pause(self) -> None:
        await self._servers.pause()

    async def resume(self) -> None:
        await self._servers.resume()

    async def close(self) -> None:
        await self._servers.close()

    def _write(self, weights: Mapping[str, Tensor], version: int) -> Path:
        from safetensors.torch import save_file

        final = self._folder / f"version-{version:08d}"
        part = final.with_name(f".{final.name}")
        for leftover in (part, *self._folder.glob(f"version-{version:08d}")):  # of an earlier life of this step
            shutil.rmtree(leftover, ignore_errors=True)
        transformers.AutoConfig.from_pretrained(self._model).save_pretrained(part)
        transformers.AutoTokenizer.from_pretrained(self._model).save_pretrained(part)
        save_file(_distinct(weights, self._dtype), part / "model.safetensors", metadata={"format": "pt"})
        part.rename(final)
        return final.resolve()


def _distinct(weights: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Each tensor under one of its names: tied weights are one tensor under two, which the format does not know."""
    seen: dict[int, str] = {}
    for name, tensor in weights.items():
        seen.setdefault(tensor.data_ptr(), name)
    return {name: weights[name].to(dtype).contiguous() for name in seen.values()}
