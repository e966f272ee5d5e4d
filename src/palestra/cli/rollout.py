"""``palestra rollout``: play episodes into a folder, in this process or on a cluster, each recorded exactly once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import typer

from palestra.adapters.loop_thread import run_anywhere
from palestra.cli.cluster import rollout_of
from palestra.cli.options import (
    CLUSTER,
    CLUSTER_CONFIG,
    ENVS,
    EPISODES_AT_ONCE,
    GROUP_SIZE,
    MAX_TURNS,
    MORE_ENVS,
    SECONDS,
    SEED,
    TASKS,
    TOOLS,
    WORKERS,
    WRAPPERS,
    default_folder,
    named_envs,
    out_option,
)
from palestra.cli.players import named_policy
from palestra.cli.results import JSON, show
from palestra.evaluation import SHOWN_CAUSES, episode_of
from palestra.foundation.terminal import terminal_safe
from palestra.registry import spec
from palestra.rollouts import RolloutOptions, play_episodes
from palestra.rollouts.playable import check_playable
from palestra.rollouts.recording import Findings, audit, recorded
from palestra.rollouts.resuming import TRAJECTORIES
from palestra.rollouts.supply import names_of

__all__ = ["rollout_command"]


def rollout_command(
    policy: str = typer.Argument(
        ..., help="random, oracle, tiny, or module:name of your own policy or of a function that takes and returns text."
    ),
    more_envs: list[str] = MORE_ENVS,
    envs: list[str] = ENVS,
    n: int = TASKS,
    group_size: int = GROUP_SIZE,
    concurrency: int = EPISODES_AT_ONCE,
    seed: int = SEED,
    max_turns: int | None = MAX_TURNS,
    deadline: float = SECONDS,
    tool: list[str] = TOOLS,
    wrapper: list[str] = WRAPPERS,
    out: Path | None = out_option("Run folder; runs/rollout,POLICY,ENVS by default."),
    cluster: str | None = CLUSTER,
    workers: int | None = WORKERS,
    cluster_config: Path | None = CLUSTER_CONFIG,
    as_json: bool = JSON,
) -> None:
    """Play episodes and record their trajectories.

    The same command resumes an interrupted rollout and plays failed episodes again. The exit code is 0 if the ledger shows that
    every episode was recorded exactly once, and at least one did not fail. Otherwise it is 1.
    """
    options = RolloutOptions(
        n=n,
        group_size=group_size,
        concurrency=concurrency,
        seed=seed,
        deadline=deadline,
        max_turns=max_turns,
        wrappers=wrapper,
        tools=tool,
    )
    asked = named_envs(envs, more_envs, [*tool, *wrapper])
    chosen = names_of(asked)
    specs = [spec(name) for name in chosen]  # refuses an unknown id before the first line is printed
    player = named_policy(policy)
    folder = out or default_folder("rollout", policy, *asked)

    causes: Counter[str] = Counter()

    async def play() -> int:
        async with rollout_of(cluster, workers, cluster_config) as rollout:
            played = 0
            if rollout is play_episodes:
                await check_playable(specs, options)
            async for trajectory in recorded(folder, chosen, player, options, name=policy, rollout=rollout):
                played += 1
                causes.update(filter(None, [episode_of(trajectory).cause]))
            return played

    typer.echo(f"playing {n * len(chosen) * group_size} episodes into {folder}", err=True)
    began = perf_counter()
    played = run_anywhere(play())
    seconds = perf_counter() - began
    findings = audit(folder)
    data = {
        "folder": str(folder),
        "played": played,
        "seconds": round(seconds, 3),
        "ledger": findings.ledger,
        "sound": findings.sound,
    }
    show(
        as_json,
        {**data, "causes": causes},
        "\n".join([f"{played} episodes in {seconds:.1f} s", *_lines(folder, findings, causes)]),
    )
    if findings.ledger.failed and not findings.ledger.consumed:
        typer.echo("every episode failed: fix the cause and run the same command again", err=True)
        raise typer.Exit(1)
    raise typer.Exit(0 if findings.sound else 1)


def _lines(out: Path, findings: Findings, causes: Counter[str]) -> Iterator[str]:
    """The ledger's balance and the causes of failures."""
    books = findings.ledger
    yield (
        f"issued {books.issued} = consumed {books.consumed} + failed {books.failed} + dropped {books.dropped}: "
        f"{'each exactly once' if findings.sound else 'NOT SOUND'}"
    )
    for cause, count in causes.most_common(SHOWN_CAUSES):
        yield f"failed: {count} × {terminal_safe(cause)}"
    if len(causes) > SHOWN_CAUSES:
        yield f"{len(causes) - SHOWN_CAUSES} other causes are in {out / TRAJECTORIES}"
    if books.failed:
        yield f"run the same command again to play the {books.failed} failed episodes again"
    yield f"wrote {out}  (palestra view {out})"
