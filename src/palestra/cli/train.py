"""``palestra train``: a recipe, overrides, and a run folder that the same command takes up again.

Torch is imported when a run is about to begin, not when the command line is.
"""

import asyncio
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from palestra.cli.cluster import CLUSTER, CLUSTER_CONFIG, WORKERS, cluster_of
from palestra.cli.dashboard import Dashboard
from palestra.cluster import ClusterConfig
from palestra.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from palestra.policies.sampled import SampledPolicy
    from palestra.training.config import TrainConfig
    from palestra.training.trainer import Evaluate, Trainer

__all__ = ["train_command"]


def train_command(  # noqa: PLR0913 - one parameter an option
    recipe: Path = typer.Argument(..., help="A TOML file."),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="learner.learning_rate=1e-5 horizon=none …"),
    out: Path | None = typer.Option(None, "-o", "--out", help="The run folder; runs/RECIPE,KEY=VALUE… by default."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the resolved plan and what it takes, and stop."),
    check: bool = typer.Option(True, help="Try model, template and environments together before the first step."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Write event files into the run folder as well."),
    wandb: str | None = typer.Option(None, "--wandb", metavar="PROJECT", help="Log to W&B as well."),
    cluster: str | None = CLUSTER,
    workers: int | None = WORKERS,
    cluster_config: Path | None = CLUSTER_CONFIG,
    replicas: int = typer.Option(1, min=0, help="Inference replicas on the cluster; 0 where the recipe names servers."),
    ranks: int = typer.Option(1, min=1, help="Learner processes on the cluster that share parameters and passes (FSDP2)."),
) -> None:
    """Train a model. Stopped by Ctrl-C or killed? The same command goes on where it was."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError:
        raise MissingExtra('training needs torch and transformers: pip install "palestra[train]"') from None
    from palestra.training.recipe import load_recipe

    transformers.utils.logging.disable_progress_bar()
    config = load_recipe(recipe, overrides or [])
    folder = out or run_folder(recipe, overrides or [])
    if dry_run:
        _print_plan(config, folder)
        return
    on_cluster = cluster is not None or cluster_config is not None
    if ranks > 1:
        _check_ranks(config, on_cluster=on_cluster)
    _same_as_before(config, folder)
    with ExitStack() as closing:
        dashboard = closing.enter_context(Dashboard(str(folder), config.steps))
        shows: list[Callable[[Mapping[str, Any]], None]] = [dashboard.show]
        _add_writers(shows, closing, config, folder, tensorboard=tensorboard, wandb=wandb)

        def show(metrics: Mapping[str, Any]) -> None:
            for one in shows:
                one(metrics)

        try:
            if on_cluster:
                place = cluster_of(cluster, workers, cluster_config)
                counts = replicas if config.engine.kind == "local" else 0, ranks
                _train_on_cluster(config, folder, place, counts, check=check, show=show)
            else:
                _train(config, folder, check=check, show=show)
        except KeyboardInterrupt:
            typer.echo("left in the middle of a step: the same command goes on after the latest checkpoint", err=True)
            raise typer.Exit(130) from None
    typer.echo(f"{folder}  (palestra plot {folder} · palestra view {folder})")


def run_folder(recipe: Path, overrides: Sequence[str]) -> Path:
    """Where a run goes if nobody says: named by what it is, so that another run is another folder and the same is the same."""
    from palestra.training.recipe import FREE

    telling = sorted(override for override in overrides if override.partition("=")[0] not in FREE)
    name = ",".join([recipe.stem, *telling])
    return Path("runs") / "".join(letter if letter.isalnum() or letter in "-_.,=+" else "-" for letter in name)[:200]


def _check_ranks(config: "TrainConfig", *, on_cluster: bool) -> None:
    if not on_cluster:
        raise UsageError("--ranks is for a cluster: --cluster local starts one on this machine")
    if config.model.share_prefix:
        raise UsageError("a learner of several ranks cannot share prefixes: model.share_prefix=false")


def _same_as_before(config: "TrainConfig", folder: Path) -> None:
    from palestra.training.config import TrainConfig
    from palestra.training.recipe import FREE, differences

    path = folder / "config.json"
    if not path.exists():
        return
    try:
        before = msgspec.json.decode(path.read_bytes(), type=TrainConfig)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is of another version of palestra ({error}): choose another folder with --out") from None
    if not (changed := differences(before, config)):
        return
    if not (folder / "metrics.jsonl").exists():
        # No step has ended, so there is nothing to keep: the recipe was mended. A warm start was one of the old recipe.
        shutil.rmtree(folder / "warm-start", ignore_errors=True)
    else:
        raise UsageError(
            f"{folder} holds a run with another {', '.join(changed)}. Choose another folder with --out, or leave them as they "
            f"were: only {', '.join(FREE)} may change when a run goes on"
        )


def _add_writers(
    shows: list[Callable[[Mapping[str, Any]], None]],
    closing: ExitStack,
    config: "TrainConfig",
    folder: Path,
    *,
    tensorboard: bool,
    wandb: str | None,
) -> None:
    from palestra.training.writers import tensorboard_writer, wandb_writer

    folder.mkdir(parents=True, exist_ok=True)
    if tensorboard:
        shows.append(tensorboard_writer(folder, config, closing))
    if wandb is not None:
        shows.append(wandb_writer(folder, config, closing, wandb))


def _train(config: "TrainConfig", folder: Path, *, check: bool, show: Callable[[Mapping[str, Any]], None]) -> None:
    from palestra.training.assembly import assemble

    trainer = assemble(config, folder, evaluate=evaluator(config, folder), show=show)
    try:
        asyncio.run(_checked_run(trainer, check=check))
    finally:
        trainer.ledger.close()
    if trainer.leaving:
        typer.echo("stopped after a whole step, with a checkpoint: the same command goes on from there", err=True)
        raise typer.Exit(130)


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

    learner, replica = (
        {"num_gpus": 1} if place.startswith("cuda") else {} for place in (config.model.device, config.engine.device)
    )
    run = Learning(msgspec.json.encode(config), str(folder.resolve()), cluster, *counts, learner, replica, check)
    deaths = asyncio.run(train_on_cluster(run, evaluate=evaluator(config, folder.resolve()), show=show, say=_note))
    if deaths:
        typer.echo(f"the learner died {deaths} times and went on from its last checkpoint", err=True)


async def _checked_run(trainer: "Trainer", *, check: bool) -> None:
    loop = asyncio.get_running_loop()

    def leave() -> None:
        if trainer.leaving:
            raise KeyboardInterrupt
        trainer.leaving = True
        typer.echo("finishing this step, then leaving. Ctrl-C once more leaves at once", err=True)

    if check:
        from palestra.training.preflight import examine

        await examine(trainer, _note)
    try:
        loop.add_signal_handler(signal.SIGINT, leave)
    except (NotImplementedError, RuntimeError):  # no signals here: Ctrl-C then leaves at once, which a run survives too
        await trainer.train()
        return
    try:
        await trainer.train()
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _note(finding: str) -> None:
    typer.secho(f"note: {finding}", fg=typer.colors.YELLOW, err=True)


def evaluator(config: "TrainConfig", folder: Path) -> "Evaluate | None":
    """How the trainer evaluates: held-out tasks, the same each time, reported like any evaluation, in a folder of its own."""
    settings = config.evaluation
    if settings is None:
        return None
    from palestra.evaluation import evaluate_async
    from palestra.policies.sampled import SampledPolicy
    from palestra.seeding import derive_seed

    async def evaluate(policy: "SampledPolicy", step: int) -> Mapping[str, float]:
        sampling = msgspec.structs.replace(policy.sampling, temperature=settings.temperature)
        player = SampledPolicy(policy.renderer, policy.engine, sampling, history=policy.history, shots=policy.shots)
        report = await evaluate_async(
            list(settings.envs or config.envs),
            player,
            n=settings.tasks,
            out=folder / "evaluations" / f"step-{step:08d}",
            seed=derive_seed(config.seed, "evaluation") % 2**31,
            concurrency=config.play.concurrency,
            deadline=config.play.deadline,
        )
        score = report.suite.score
        numbers = {"coverage": report.suite.scored / max(report.suite.issued, 1)}
        if score is not None:
            numbers |= {"score": score.mean, "low": score.low, "high": score.high}
        return numbers if report.suite.success is None else {**numbers, "success": report.suite.success.mean}

    return evaluate


def _print_plan(config: "TrainConfig", folder: Path) -> None:
    from palestra.training.estimate import estimate

    typer.echo(msgspec.json.format(msgspec.json.encode(config)).decode())
    typer.echo(f"folder      {folder}")
    for line in estimate(config).lines():
        typer.echo(line)
