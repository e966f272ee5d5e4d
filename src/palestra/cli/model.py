"""``palestra model``: small models to try things on, and trained models out of runs."""

from pathlib import Path
from typing import Literal

import typer

from palestra.cli.options import out_option, seed_option
from palestra.cli.results import JSON, show
from palestra.cli.targets import check_folder
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.installation import how_to_install
from palestra.inference.models import build_tiny, fetch_smollm2

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True)
_FETCHERS = {"smollm2": fetch_smollm2}
_OUT = out_option("Folder to create; by default one in your cache folder.")


@app.command("fetch")
def fetch_command(name: str = typer.Argument(..., help="smollm2"), out: Path | None = _OUT, as_json: bool = JSON) -> None:
    """Download SmolLM2-135M-Instruct (about 0.5 GB) and print its folder."""
    if name not in _FETCHERS:
        raise UsageError(f"no model {name!r} to fetch; there is {', '.join(_FETCHERS)}")
    _show(as_json, _FETCHERS[name](out))


@app.command("tiny")
def tiny_command(
    envs: str = typer.Option("game:*", help="Environments whose text the tokenizer learns."),
    seed: int = seed_option("Seed of the weights and of the text."),
    out: Path | None = _OUT,
    as_json: bool = JSON,
) -> None:
    """Build a tiny untrained model (under a million parameters) and print its folder."""
    _show(as_json, build_tiny(out, envs=envs, seed=seed))


@app.command("export")
def export_command(
    run: Path = typer.Argument(..., help="Folder of a training run."),
    out: Path | None = out_option("Folder to create; by default RUN/model."),
    dtype: str = typer.Option("float32", help="Data type of the weights: float32 (as trained) or bfloat16."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace a model that is in the folder already."),
    best: bool = typer.Option(False, "--best", help="Export the checkpoint with the best evaluation, not the newest one."),
    as_json: bool = JSON,
) -> None:
    """Write the model of a training run's newest checkpoint as a folder that transformers loads, and print the folder.

    The folder also holds the tokenizer with its chat template, a generation configuration, and a model card with the recipe,
    the curves and the scores. LoRA adapters are merged into the weights. A critic is left out.
    """
    try:
        import transformers

        from palestra.training.export import export_model
    except ImportError:
        raise MissingExtra(f"exporting needs torch and transformers: {how_to_install('train')}") from None
    if dtype not in ("float32", "bfloat16"):
        raise UsageError(f'--dtype is float32 or bfloat16, got "{dtype}"')
    transformers.utils.logging.disable_progress_bar()
    check_folder(out or run)
    kind: Literal["float32", "bfloat16"] = "bfloat16" if dtype == "bfloat16" else "float32"
    _show(as_json, export_model(run, out, dtype=kind, overwrite=overwrite, best=best))


def _show(as_json: bool, folder: Path) -> None:
    show(as_json, {"folder": str(folder)}, str(folder))
