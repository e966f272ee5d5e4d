"""``palestra train``: train a recipe in a run folder; the same command resumes it.

The command imports torch when it runs, not when the command line is built.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from palestra.cli.cluster import cluster_of
from palestra.cli.dashboard import Dashboard
from palestra.cli.endings import Interrupted
from palestra.cli.options import CLUSTER, CLUSTER_CONFIG, OVERRIDES, WORKERS, default_folder, out_option
from palestra.cli.results import json_option, show
from palestra.cli.targets import check_folder
from palestra.cluster import ClusterConfig
from palestra.durable import Inside
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.imports import import_uninterrupted
from palestra.foundation.installation import how_to_install
from palestra.foundation.references import Hook, hook, search_here
from palestra.foundation.terminal import terminal_safe
from palestra.registry import spec, typed

if TYPE_CHECKING:
    from palestra.recipes.config import TrainConfig

__all__ = ["train_command"]

_RESUME = "To resume, run the same command again"


def train_command(
    recipe: Path = typer.Argument(..., help="A TOML file, or the name of a shipped recipe, such as cpu/guess."),
    overrides: list[str] = OVERRIDES,
    out: Path | None = out_option("Run folder; runs/RECIPE,KEY=VALUE… by default."),
    dry_run: bool = typer.Option(
        False,
        "--dry-run",
        help="Do not train: print how much memory and how many tokens the recipe needs, then the resolved recipe.",
    ),
    check: bool = typer.Option(
        True, help="Check before the first step that the model, its chat template and the environments work together."
    ),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also write TensorBoard event files into the run folder."),
    wandb: str | None = typer.Option(None, "--wandb", metavar="PROJECT", help="Also log to this W&B project."),
    cluster: str | None = CLUSTER,
    workers: int | None = WORKERS,
    cluster_config: Path | None = CLUSTER_CONFIG,
    replicas: int = typer.Option(
        1, min=0, help="Number of inference replicas on the cluster; use 0 if the recipe names servers."
    ),
    ranks: int = typer.Option(1, min=1, help="Number of learner processes on the cluster that shard the model (FSDP2)."),
    as_json: bool = json_option("At the end, print the folder and the metrics of the last step as JSON."),
) -> None:
    """Train a model. To resume a run that was stopped or killed, run the same command again."""
    typer.echo(f"{recipe}: loading torch and transformers", err=True)  # which takes seconds
    try:
        import_uninterrupted("torch")
        transformers = import_uninterrupted("transformers")
    except ImportError:
        raise MissingExtra(f"training needs torch and transformers: {how_to_install('train')}") from None
    from palestra.recipes.reading import resolve
    from palestra.training.record import read_metrics

    transformers.utils.logging.disable_progress_bar()
    config = _with_writers(resolve(recipe, overrides or []), tensorboard=tensorboard, wandb=wandb)
    _import_parts(config)
    folder = out or run_folder(recipe, overrides or [])
    if dry_run:
        _print_plan(config, folder)
        return
    on_cluster = cluster is not None or cluster_config is not None
    _check_ranks(config, ranks, on_cluster=on_cluster)
    check_folder(folder)
    with Dashboard(str(folder), config.steps) as dashboard:
        try:
            if on_cluster:
                cluster_settings = cluster_of(cluster, workers, cluster_config)
                counts = replicas if config.engine.name == "local" else 0, ranks
                _train_on_cluster(config, folder, cluster_settings, counts, check=check, show=dashboard.show)
            else:
                _train(config, folder, check=check, show=dashboard.show)
        except KeyboardInterrupt:
            raise Interrupted(_what_is_lost(folder)) from None
    data = {"folder": str(folder), "last_step": read_metrics(folder)[-1]} if as_json else {}
    show(as_json, data, f"{folder}  (palestra plot {folder} · palestra view {folder})")


def _what_is_lost(folder: Path) -> str:
    """What Ctrl-C costs, and how to continue."""
    from palestra.training.record import read_metrics

    if not (Inside(folder) / "metrics.jsonl").exists() or not read_metrics(folder):
        return "The first step had not ended. To start again, run the same command."
    return f"The steps since the latest checkpoint are lost. {_RESUME}."


def _with_writers(config: "TrainConfig", *, tensorboard: bool, wandb: str | None) -> "TrainConfig":
    """Add the writers that the options name to those of the recipe."""
    added: list[Hook] = [*(["tensorboard"] if tensorboard else []), *([hook("wandb", project=wandb)] if wandb else [])]
    return msgspec.structs.replace(
        config, writers=(*config.writers, *(writer for writer in added if writer not in config.writers))
    )


def _import_parts(config: "TrainConfig") -> None:
    """Find every environment and import every part that the recipe names, before a model is loaded."""
    from palestra.training.parts import load_parts, names_in_variants, references_of

    evaluated = config.evaluation.envs if config.evaluation is not None else ()
    registered = [id for id in config.envs if id not in config.variants]
    typed([*registered, *evaluated, *names_in_variants(config)])
    if references_of(config):
        search_here()
    load_parts(config)
    for id in registered:
        spec(id)


def run_folder(recipe: Path, overrides: Sequence[str]) -> Path:
    """The default folder. Recipe and overrides name it, so the same command resumes and another command gets another folder."""
    from palestra.recipes.reading import FREE

    # The names of shipped recipes contain dots, as in qwen2.5-7b.
    name = recipe.stem if recipe.suffix == ".toml" else recipe.name
    return default_folder(name, *sorted(override for override in overrides if override.partition("=")[0] not in FREE))


def _check_ranks(config: "TrainConfig", ranks: int, *, on_cluster: bool) -> None:
    from palestra.training.learner.context import check_groups

    if ranks > 1 and not on_cluster:
        raise UsageError("--ranks is for a cluster: --cluster local starts one on this machine")
    check_groups(config.learner.context_parallel, ranks)
    if ranks > 1 and config.model.share_prefix:
        raise UsageError("a learner with several ranks cannot share prefixes: set model.share_prefix=false")
    if on_cluster and config.opponent is not None:
        raise UsageError("[opponent] does not work on a cluster yet: train in one process")


def _train(config: "TrainConfig", folder: Path, *, check: bool, show: Callable[[Mapping[str, Any]], None]) -> None:
    from palestra.training.record import read_metrics
    from palestra.training.run import train

    trainer = train(config, folder, check=check, show=show, say=_note)
    if trainer.stop_requested:
        done = len(read_metrics(folder))
        raise Interrupted(f"The run stopped after step {done} of {config.steps}, with a checkpoint. {_RESUME}.")


def _train_on_cluster(
    config: "TrainConfig",
    folder: Path,
    cluster: ClusterConfig,
    counts: tuple[int, int],
    *,
    check: bool,
    show: Callable[[Mapping[str, Any]], None],
) -> None:
    from palestra.cluster.learner import Learning, train_on_cluster
    from palestra.training.writers import writing

    learner, replica = (
        {"num_gpus": 1} if device.startswith("cuda") else {} for device in (config.model.device, config.engine_device)
    )
    run = Learning(msgspec.json.encode(config), str(folder.resolve()), cluster, *counts, learner, replica, check)
    with writing(config, folder, show) as write:
        deaths = asyncio.run(train_on_cluster(run, show=write, say=_note))
    if deaths:
        typer.echo(f"the learner died {deaths} times and resumed from its latest checkpoint", err=True)


def _note(finding: str) -> None:
    typer.secho(f"note: {terminal_safe(str(finding))}", fg=typer.colors.YELLOW, err=True)


def _print_plan(config: "TrainConfig", folder: Path) -> None:
    from palestra.training.estimate import estimate

    typer.echo(f"folder      {folder}")
    for line in estimate(config).lines():
        typer.echo(line)
    typer.echo(f"\n{msgspec.json.format(msgspec.json.encode(config)).decode()}")
