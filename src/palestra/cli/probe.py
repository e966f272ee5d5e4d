"""``palestra probe``: can a set of tasks teach a model?"""

import asyncio
from pathlib import Path

import typer

from palestra.cli.endings import Interrupted
from palestra.cli.options import (
    EPISODES_AT_ONCE,
    HISTORY,
    LONGEST_REPLY,
    MAX_TURNS,
    MODEL_URL,
    SECONDS,
    SEED,
    SHOTS,
    STRATEGY,
    TEMPERATURE,
    TOKENIZER,
    TOOLS,
    WRAPPERS,
    default_folder,
    group_size_option,
    named_envs,
    out_option,
    tasks_option,
)
from palestra.cli.players import PlayerOptions, playing
from palestra.cli.results import json_option, show
from palestra.cli.targets import check_folder
from palestra.errors import UsageError
from palestra.evaluation.learnability import Probe, ProbeAim
from palestra.evaluation.probing import GROUP_SIZE, TASKS, probe_async, probe_markdown
from palestra.foundation.terminal import terminal_safe

__all__ = ["probe_command"]


def probe_command(
    envs: list[str] = typer.Argument(..., metavar="ID...", help="Ids or patterns of environments, or module:Class."),
    policy: str = typer.Option(
        ..., "--policy", "-p", metavar="NAME", help="The model, as for palestra eval: hf:FOLDER, vllm:URL, or module:name."
    ),
    n: int = tasks_option(TASKS, min=2),
    group_size: int = group_size_option(GROUP_SIZE, "Episodes per task, as in the training.", min=2),
    groups: int = typer.Option(32, "--groups", min=1, metavar="N", help="Groups per step of the training."),
    held_out: int = typer.Option(200, "--held-out", min=2, metavar="N", help="Held-out tasks that are to show the gain."),
    baselines: bool = typer.Option(True, help="Let random actions and the oracle play the same tasks."),
    as_json: bool = json_option("Print the result as JSON."),
    concurrency: int = EPISODES_AT_ONCE,
    seed: int = SEED,
    max_turns: int | None = MAX_TURNS,
    deadline: float = SECONDS,
    tool: list[str] = TOOLS,
    wrapper: list[str] = WRAPPERS,
    out: Path | None = out_option("Run folder; runs/probe,POLICY,ENVS by default."),
    base_url: str | None = MODEL_URL,
    max_tokens: int = LONGEST_REPLY,
    temperature: float = TEMPERATURE,
    shots: int = SHOTS,
    tokenizer: str | None = TOKENIZER,
    history: str | None = HISTORY,
    strategy: str | None = STRATEGY,
) -> None:
    """Judge whether a set of tasks can teach a model, before a GPU trains on it.

    The exit code is 0 if it can, and 1 if it cannot or if the probe is too small to tell. The same command resumes.
    """
    parts = [part for part in (history, strategy) if part]
    names = named_envs([], envs, [*tool, *wrapper, *parts])
    if not temperature:
        raise UsageError("--temperature 0 makes all episodes of a task the same: probe with the temperature of the training")
    player = PlayerOptions(
        base_url=base_url,
        max_tokens=max_tokens,
        temperature=temperature,
        shots=shots,
        history=history,
        tokenizer=tokenizer,
        strategy=strategy,
    )
    folder = check_folder(out or default_folder("probe", policy, *parts, *names))

    async def probed() -> Probe:
        async with playing(policy, player) as who:
            return await probe_async(
                names,
                who,
                out=folder,
                aim=ProbeAim(groups, held_out),
                baselines=baselines,
                n=n,
                group_size=group_size,
                concurrency=concurrency,
                seed=seed,
                max_turns=max_turns,
                deadline=deadline,
                about=player.about(policy),
                wrappers=wrapper,
                tools=tool,
            )

    try:
        probe = asyncio.run(probed())
    except KeyboardInterrupt:
        raise Interrupted(f"Finished episodes are in {folder}: run the same command again to resume.") from None
    show(as_json, probe, terminal_safe(probe_markdown(probe)))
    typer.echo(f"wrote {folder / 'probe.json'}", err=True)
    if probe.verdict != "yes":
        raise typer.Exit(1)
