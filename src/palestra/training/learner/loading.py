"""Build the network of a configuration from a model folder, and check that it can be trained as configured."""

from typing import Any

import torch

from palestra.errors import Unsupported, UsageError
from palestra.recipes.model import LoraSettings, ModelConfig
from palestra.training.learner.attention import is_flash, register_segments
from palestra.training.learner.checks import check_head, check_sharing
from palestra.training.learner.compiling import check_compiler
from palestra.training.learner.model import ActorCritic
from palestra.training.learner.sharded import checkpoint_files, load_sharded

__all__ = ["assembled", "load_model"]


def load_model(config: ModelConfig, model: Any = None) -> ActorCritic:
    """Build the network of ``config``, around ``model`` if one is given instead of a path.

    With several ranks and a checkpoint that can be read by rows, the network is sharded already, and all ranks must call this.
    """
    _check_settings(config)
    if config.compile:
        check_compiler(config.compile, config.device)
    register_segments()
    files = [] if model is not None else checkpoint_files(config.path)
    if files:
        network = load_sharded(config, files, lambda empty: assembled(config, empty))
    else:
        if model is None:
            model = _read(config)
        else:
            model.set_attn_implementation(config.attention)
        model.to(config.device)
        network = assembled(config, model).to(config.device)
    check_head(network)
    if config.share_prefix:
        check_sharing(network)
    return network


def assembled(config: ModelConfig, model: Any) -> ActorCritic:
    """Return the network around ``model``, which is not checked yet."""
    if config.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if config.lora is not None:
        model = _adapted(model, config.lora)
    return ActorCritic(model, config)


def _adapted(model: Any, settings: LoraSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    targets = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
    alpha: Any = settings.alpha  # peft divides by the rank; its annotation says int
    config = LoraConfig(r=settings.rank, lora_alpha=alpha, target_modules=targets, bias="none")
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        linear = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
        raise Unsupported(
            f"{type(model).__name__} cannot have adapters at model.lora.targets = {targets!r}: {error} "
            f"Its linear layers are {', '.join(sorted(linear))}"
        ) from error


def _check_settings(config: ModelConfig) -> None:
    if config.share_prefix and config.recompute:
        raise UsageError("model.share_prefix keeps activations that model.recompute discards: set only one of them")
    if is_flash(config.attention) and config.compute != "bfloat16":
        raise UsageError(f'model.attention = "{config.attention}" computes in 16 bits: set model.compute = "bfloat16"')


def _read(config: ModelConfig) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(config.path, dtype=torch.float32, attn_implementation=config.attention)
