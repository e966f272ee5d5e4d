"""The built-in engines of a run. ``recipes/engine.py`` has the names under which ``engine.kind`` finds them.

Each is a function of an ``EngineSetup``, as your own ``module:name`` is. The trainer calls ``update_weights`` with a
``PolicyWeights`` before the first episode and after every step. The engine takes the tensors from its ``items()``, or makes the
learner write a model folder.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from palestra.core import Engine
from palestra.errors import UsageError
from palestra.inference.engines.hf import HFEngine
from palestra.inference.servers.broadcasting import CollectiveTransfer
from palestra.inference.servers.launching import SERVERS, Fleet, LaunchedEngine, server_commands
from palestra.inference.servers.publishing import WEIGHTS, PublishedAdapters, PublishedWeights, Transfer
from palestra.inference.servers.served import ServedEngine
from palestra.inference.servers.sglang import SGLangEngine
from palestra.inference.servers.vllm import VLLMEngine
from palestra.inference.setup import EngineSetup
from palestra.recipes.engine import TRANSFER

__all__ = [
    "collective_transfer",
    "folder_transfer",
    "frozen_engine",
    "local_engine",
    "lora_transfer",
    "sglang_engine",
    "vllm_engine",
]


def local_engine(setup: EngineSetup) -> Engine:
    """A copy of the model in this process."""
    options = setup.options
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(setup.model, dtype=getattr(torch, options.dtype))
    model = model.to(options.device or setup.learner_device)
    return HFEngine(model, decode=setup.tokenizer.decode, batch=options.batch, rows=options.rows)


def vllm_engine(setup: EngineSetup) -> Engine:
    """The vLLM servers at ``engine.urls``, or those of ``[engine.launch]``."""
    return _served(setup, VLLMEngine)


def sglang_engine(setup: EngineSetup) -> Engine:
    """The SGLang servers at ``engine.urls``, or those of ``[engine.launch]``."""
    return _served(setup, SGLangEngine)


def frozen_engine(setup: EngineSetup, urls: Sequence[str]) -> Engine:
    """An engine beside that of the run, for weights that do not follow the learner: ``update_weights`` gets model folders."""
    if setup.options.name == "local":
        return local_engine(setup)
    kind = {"vllm": VLLMEngine, "sglang": SGLangEngine}[setup.options.name]
    return ServedEngine(kind(urls, timeout=setup.timeout), _AsGiven())


class _AsGiven:
    """Servers load the model folder that ``update_weights`` gets."""

    def write(self, weights: Any, version: int) -> Any:
        return weights


def folder_transfer(setup: EngineSetup) -> Transfer:
    """Model folders with all weights, in the run folder."""
    return PublishedWeights(str(setup.folder / WEIGHTS), setup.model, setup.options.dtype)


def lora_transfer(setup: EngineSetup, *, load_base: bool = True) -> Transfer:
    """Adapters alone, in the run folder. Servers load the model that the run starts from once, before the first adapter.

    Servers that the run starts with that model need not load it. ``load_base = false`` says the same of those at
    ``engine.urls``.
    """
    options = setup.options
    started = options.launch is not None and "{model}" in options.launch.command_for(options.name)
    folder = Path(setup.model)
    base = str(folder.resolve()) if folder.is_dir() else setup.model
    return PublishedAdapters(
        str(setup.folder / WEIGHTS),
        options.dtype,
        base=base if load_base and not started else "",
        run=f"{setup.folder.resolve().name}-{secrets.token_hex(4)}",
    )


def collective_transfer(setup: EngineSetup, *, bucket: int = 1 << 30) -> Transfer:
    """All weights in bfloat16, broadcast in buckets of about ``bucket`` bytes."""
    if not setup.learner_device.startswith("cuda"):
        raise UsageError(
            'engine.transfer = "collective" sends from a GPU to GPUs: set model.device = "cuda", or engine.transfer = "folder"'
        )
    return CollectiveTransfer(setup.learner_device, bucket=bucket, say=setup.say)


def _served(setup: EngineSetup, kind: type[VLLMEngine] | type[SGLangEngine]) -> Engine:
    options = setup.options
    commands = server_commands(options, setup.model, setup.learner_device, setup.adapter_rank)
    urls = [command.url for command in commands] or list(options.urls)
    servers = kind(urls, timeout=setup.timeout)
    transfer = TRANSFER.load(options.transfer)(setup)
    engine = ServedEngine(servers, transfer, keep_weights=options.transfer_name not in ("folder", "collective"))
    if options.launch is None:
        return engine
    folder = setup.folder / SERVERS
    fleet = Fleet(commands, folder, patience=options.launch.patience, restarted=servers.suspect, say=setup.say)
    return LaunchedEngine(engine, servers, fleet)
