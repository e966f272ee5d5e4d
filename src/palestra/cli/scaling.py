"""``palestra scaling``: the score against turns allowed and against samples drawn, with intervals, in one figure."""

import asyncio
from pathlib import Path

import typer

from palestra.cli.endings import Interrupted
from palestra.cli.players import PlayerOptions, playing
from palestra.cli.results import JSON, show
from palestra.cli.settings import (
    ENVS,
    EPISODES_AT_ONCE,
    HISTORY,
    LONGEST_REPLY,
    MODEL_URL,
    MORE_ENVS,
    SECONDS,
    SEED,
    SHOTS,
    STRATEGY,
    TEMPERATURE,
    TOKENIZER,
    TOOLS,
    WRAPPERS,
    default_folder,
    named_envs,
)
from palestra.cli.targets import check_folder
from palestra.evaluation.scaling import Scaling, scaling_async, scaling_markdown
from palestra.foundation.terminal import terminal_safe
from palestra.registry import typed
from palestra.rollouts.defaults import TASKS_PER_ENV

__all__ = ["scaling_command"]


def scaling_command(
    policy: str = typer.Argument(
        ...,
        help="random, oracle, tiny, your own module:name, hf:FOLDER, vllm:URL, sglang:URL, or a model's name with --base-url.",
    ),
    more_envs: list[str] = MORE_ENVS,
    envs: list[str] = ENVS,
    turns: list[int] = typer.Option(
        [], "--turns", "-t", min=1, metavar="N", help="A turn limit. Repeat it; by default only the environments' own limit."
    ),
    samples: int = typer.Option(8, "--samples", "-k", min=1, metavar="N", help="Episodes per task and turn limit."),
    judge: str = typer.Option(
        "likelihood", metavar="NAME", help="What prefers one episode to another: likelihood, or your own module:name."
    ),
    n: int | None = typer.Option(None, "-n", min=1, metavar="N", help=f"Tasks per environment; {TASKS_PER_ENV} by default."),
    concurrency: int = EPISODES_AT_ONCE,
    seed: int = SEED,
    deadline: float = SECONDS,
    tool: list[str] = TOOLS,
    wrapper: list[str] = WRAPPERS,
    out: Path | None = typer.Option(None, "-o", "--out", help="Run folder; runs/scaling,POLICY,ENVS by default."),
    base_url: str | None = MODEL_URL,
    max_tokens: int = LONGEST_REPLY,
    temperature: float = TEMPERATURE,
    shots: int = SHOTS,
    tokenizer: str | None = TOKENIZER,
    history: str | None = HISTORY,
    strategy: str | None = STRATEGY,
    as_json: bool = JSON,
) -> None:
    """Measure test-time compute: success against turns allowed, and against samples per task (pass@k, majority, best of k).

    The same command resumes an interrupted run. The folder gets scaling.svg, scaling.md and scaling.json.
    """
    parts = [part for part in (history, strategy) if part]
    names = named_envs(envs, more_envs, [*tool, *wrapper, *parts])
    typed([judge])
    player = PlayerOptions(
        base_url=base_url,
        max_tokens=max_tokens,
        temperature=temperature,
        shots=shots,
        history=history,
        tokenizer=tokenizer,
        strategy=strategy,
    )
    folder = check_folder(out or default_folder("scaling", policy, *parts, *names))

    async def measured() -> Scaling:
        async with playing(policy, player) as who:
            return await scaling_async(
                names,
                who,
                turns=turns or [None],
                samples=samples,
                out=folder,
                judge=judge,
                n=n,
                concurrency=concurrency,
                seed=seed,
                deadline=deadline,
                about=player.about(policy),
                wrappers=wrapper,
                tools=tool,
            )

    try:
        found = asyncio.run(measured())
    except KeyboardInterrupt:
        raise Interrupted(f"Finished episodes are in {folder}: run the same command again to resume.") from None
    text = f"{terminal_safe(scaling_markdown(found))}\nwrote {folder / 'scaling.svg'}"
    show(as_json, {"folder": str(folder), "scaling": found}, text)
