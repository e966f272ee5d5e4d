"""Take the trained model out of a run: a folder that transformers loads, from the newest checkpoint or the best.

Nothing that the run's configuration names is imported, and nothing in the folder is unpickled, so a run folder from somewhere
else is safe to export.
"""

from pathlib import Path
from typing import Literal

import torch
import transformers

from palestra.durable import Inside
from palestra.durable.checkpoint import Checkpoints, verify
from palestra.errors import SchemaError, UsageError
from palestra.foundation.home import new_model
from palestra.inference.models.choice import find_finished_model
from palestra.recipes.config import TrainConfig
from palestra.recipes.model import ModelConfig
from palestra.recipes.reading import saved_config
from palestra.training.card import model_card
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import ActorCritic
from palestra.training.learner.state import StateReader, rows_of
from palestra.training.warm_start import WARM_START, finished_warm_start

__all__ = ["export_model"]

_MODEL = "model."
"""What the names of the network's tensors begin with in a checkpoint."""


def export_model(
    run: str | Path,
    out: str | Path | None = None,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    overwrite: bool = False,
    best: bool = False,
) -> Path:
    """Write the model of a training run as a folder with its configuration, tokenizer, safetensors and model card.

    LoRA adapters are merged into the weights. A critic is left out. The generation configuration samples as in training:
    settings of the base model such as a repetition penalty are not those that the model was trained with.

    Args:
        run: The folder of a training run that has a checkpoint.
        out: The folder to create; by default ``model`` in the run folder.
        dtype: The data type of the weights. Training keeps them in float32.
        overwrite: Whether to replace a model that ``out`` holds, for example that of an earlier checkpoint.
        best: Take the checkpoint with the best evaluation (``evaluation.keep_best``) instead of the newest one.

    Returns:
        The folder, for ``AutoModelForCausalLM.from_pretrained`` or ``palestra eval hf:FOLDER``.

    Raises:
        UsageError: ``run`` does not hold a training run with a checkpoint, or ``out`` is not empty. With ``overwrite``,
            ``out`` holds something else than a model.

    """
    run = Path(run)
    out = Path(out) if out is not None else run / "model"
    config = saved_config(run)
    if not overwrite and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out} is not empty: replace it with --overwrite, or name another folder with --out")
    path, step = _checkpoint(run, config, best=best)
    warm = Inside(run) / WARM_START
    base = str(finished_warm_start(warm) if warm.exists() else find_finished_model(config.model.path))
    # Of the run's settings only those of the adapters change the weights. An attention kernel would be downloaded and run.
    plain = ModelConfig(base, lora=config.model.lora, attention="eager")
    network = load_model(plain)
    _fill(network, path)
    model = network.model.merge_and_unload() if plain.lora else network.model
    with new_model(out, replace=overwrite) as draft:
        model.generation_config = _sampling(model.generation_config, config)
        model.to(getattr(torch, dtype)).save_pretrained(draft)
        (draft / "README.md").write_text(model_card(run, config, step), encoding="utf-8")
        transformers.AutoTokenizer.from_pretrained(base).save_pretrained(draft)
    return out


def _checkpoint(run: Path, config: TrainConfig, *, best: bool) -> tuple[Path, int]:
    """The folder of the checkpoint to export, verified, and the number of its step."""
    checkpoints = Checkpoints(Inside(run) / "checkpoints", config.keep)
    if not best:
        newest = checkpoints.newest()
        if newest is None:
            raise UsageError(f"{run} has no complete checkpoint: train to the first one (checkpoint_every), then export again")
        return newest[0], newest[1].step
    chosen = checkpoints.best()
    if chosen is None:
        raise UsageError(
            f"{run} has no best checkpoint: set evaluation.keep_best = true. If it was set, no step was better than the model "
            "before the first step"
        )
    return chosen, verify(chosen).step


def _sampling(base: transformers.GenerationConfig, config: TrainConfig) -> transformers.GenerationConfig:
    """The special tokens of ``base``, and the sampling of the run."""
    special = ("bos_token_id", "eos_token_id", "pad_token_id")
    kept = {name: getattr(base, name) for name in special if getattr(base, name, None) is not None}
    return transformers.GenerationConfig(
        **kept,
        do_sample=True,
        temperature=config.learner.temperature,
        top_p=1.0,
        top_k=0,
        repetition_penalty=1.0,
        max_new_tokens=config.play.max_tokens,
    )


def _fill(network: ActorCritic, checkpoint: Path) -> None:
    """Copy the trained weights of ``checkpoint`` into ``network``. The frozen ones are those of the model it started from."""
    saved = StateReader(checkpoint)
    tensors = {f"{_MODEL}{name}": tensor for name, tensor in (*network.named_parameters(), *network.named_buffers())}
    trained = {f"{_MODEL}{name}" for name, parameter in network.named_parameters() if parameter.requires_grad}
    there = {name for name in saved.names() if name.startswith(_MODEL) and not name.startswith(f"{_MODEL}critic.")}
    if not trained <= there <= tensors.keys():
        other = ", ".join(sorted((trained - there) | (there - tensors.keys()))[:3])
        raise SchemaError(f"{checkpoint} holds the weights of another network: the two differ in {other}")
    for name in there:
        saved.fill(name, rows_of(tensors[name]))
