"""The built-in engines of a run, by the names that ``engine.kind`` knows.

Each is a function of an ``EngineSetup``, as your own ``module:name`` is. The trainer calls ``update_weights`` with a
``PolicyWeights`` before the first episode and after every step. The engine takes the tensors from its ``items()``, or makes the
learner write a model folder.
"""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from palestra.core import Engine
from palestra.errors import UsageError
from palestra.inference.engines.hf import HFEngine
from palestra.inference.engines.sglang import SGLangEngine
from palestra.inference.engines.vllm import VLLMEngine
from palestra.recipes.config import TrainConfig
from palestra.recipes.engine import TRANSFER
from palestra.training.collective import CollectiveTransfer
from palestra.training.launching import SERVERS, Fleet, LaunchedEngine, server_commands
from palestra.training.publishing import WEIGHTS, PublishedAdapters, PublishedWeights, Transfer
from palestra.training.served import ServedEngine

__all__ = [
    "EngineSetup",
    "collective_transfer",
    "folder_transfer",
    "frozen_engine",
    "local_engine",
    "lora_transfer",
    "sglang_engine",
    "vllm_engine",
]


class EngineSetup(NamedTuple):
    """What an engine of a run is built from."""

    config: TrainConfig
    model: str
    """The model folder, or its name on the hub, that the first step starts from."""
    folder: Path
    """The run folder."""
    tokenizer: Any
    """The tokenizer of the model, from transformers."""
    say: Callable[[str], None] = lambda _: None
    """Takes notes for the user."""


def local_engine(setup: EngineSetup) -> Engine:
    """A copy of the model in this process."""
    settings = setup.config.engine
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(setup.model, dtype=getattr(torch, settings.dtype))
    model = model.to(setup.config.engine_device)
    return HFEngine(model, decode=setup.tokenizer.decode, batch=settings.batch, rows=settings.rows)


def vllm_engine(setup: EngineSetup) -> Engine:
    """The vLLM servers at ``engine.urls``, or those of ``[engine.launch]``."""
    return _served(setup, VLLMEngine)


def sglang_engine(setup: EngineSetup) -> Engine:
    """The SGLang servers at ``engine.urls``, or those of ``[engine.launch]``."""
    return _served(setup, SGLangEngine)


def frozen_engine(setup: EngineSetup, urls: Sequence[str]) -> Engine:
    """An engine beside that of the run, for weights that do not follow the learner: ``update_weights`` gets model folders."""
    if setup.config.engine.name == "local":
        return local_engine(setup)
    kind = {"vllm": VLLMEngine, "sglang": SGLangEngine}[setup.config.engine.name]
    return ServedEngine(kind(urls, timeout=setup.config.play.deadline), _AsGiven())


class _AsGiven:
    """Servers load the model folder that ``update_weights`` gets."""

    def write(self, weights: Any, version: int) -> Any:
        return weights


def folder_transfer(setup: EngineSetup) -> Transfer:
    """Model folders with all weights, in the run folder."""
    return PublishedWeights(str(setup.folder / WEIGHTS), setup.model, setup.config.engine.dtype)


def lora_transfer(setup: EngineSetup, *, load_base: bool = True) -> Transfer:
    """Adapters alone, in the run folder. Servers load the model that the run starts from once, before the first adapter.

    Servers that the run starts with that model need not load it. ``load_base = false`` says the same of those at
    ``engine.urls``.
    """
    engine = setup.config.engine
    started = engine.launch is not None and "{model}" in engine.launch.command_for(engine.name)
    folder = Path(setup.model)
    base = str(folder.resolve()) if folder.is_dir() else setup.model
    return PublishedAdapters(
        str(setup.folder / WEIGHTS),
        engine.dtype,
        base=base if load_base and not started else "",
        run=f"{setup.folder.resolve().name}-{secrets.token_hex(4)}",
    )


def collective_transfer(setup: EngineSetup, *, bucket: int = 1 << 30) -> Transfer:
    """All weights in bfloat16, broadcast in buckets of about ``bucket`` bytes."""
    if not setup.config.model.device.startswith("cuda"):
        raise UsageError(
            'engine.transfer = "collective" sends from a GPU to GPUs: set model.device = "cuda", or engine.transfer = "folder"'
        )
    return CollectiveTransfer(setup.config.model.device, bucket=bucket, say=setup.say)


def _served(setup: EngineSetup, kind: type[VLLMEngine] | type[SGLangEngine]) -> Engine:
    launch = setup.config.engine.launch
    commands = [] if launch is None else server_commands(setup.config, setup.model)
    urls = [command.url for command in commands] or list(setup.config.engine.urls)
    servers = kind(urls, timeout=setup.config.play.deadline)
    settings = setup.config.engine
    transfer = TRANSFER.load(settings.transfer)(setup)
    engine = ServedEngine(servers, transfer, keep_weights=settings.transfer_name not in ("folder", "collective"))
    if launch is None:
        return engine
    folder = setup.folder / SERVERS
    fleet = Fleet(commands, folder, patience=launch.patience, restarted=servers.suspect, say=setup.say)
    return LaunchedEngine(engine, servers, fleet)
