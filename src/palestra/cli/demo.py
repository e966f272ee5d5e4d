"""``palestra demo``: a first look in one minute, without an API key, a GPU or Docker.

Random moves, the trained tiny model that the wheel carries, and the oracle play four games. A table shows their scores. A page
shows every episode, for the model token by token, and says what to do next.
"""

import asyncio
import statistics
from pathlib import Path

import msgspec
import typer

from palestra.cli.options import TASK_SEED, out_option, tasks_option
from palestra.cli.results import json_option
from palestra.durable import replacing
from palestra.foundation.encoding import encode_json
from palestra.foundation.statistics import Score, mean_interval
from palestra.inference.models.packed import load_demo_model
from palestra.rollouts import rollout
from palestra.trajectory import Trajectory, writable
from palestra.viewer.page import run_page, static_page

__all__ = ["demo_command"]

GAMES = ("game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "game:TowerofHanoi-v0-easy", "game:FrozenLake-v0-easy")
PLAYERS = {
    "random": "random legal moves",
    "tiny": "a model of 120,000 parameters that was trained on these games, sampled here with NumPy",
    "oracle": "the best move, which the game itself knows",
}
"""Each player and what it does."""
NEXT = (
    ("palestra play game:FrozenLake-v0-easy", "play yourself, in the terminal"),
    ("palestra list", "see all environments; palestra show ID prints the rules of one"),
    ("palestra eval MODEL --base-url URL --envs 'game:*-easy'", "evaluate a model behind an OpenAI-compatible API"),
    ("palestra new env mine", "write an environment of your own: the command makes a package that works"),
    ("palestra train cpu/demo", "train the tiny model of this page (`palestra doctor` says how to install the extra train)"),
)
"""What to type next, and what it does."""


class _Cell(msgspec.Struct, frozen=True):
    """The score of one player in one game."""

    mean: float
    low: float
    high: float
    turns: float
    failed: int

    @property
    def text(self) -> str:
        unscored = f" ({self.failed} failed)" if self.failed else ""
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]{unscored}"


_Rows = dict[str, dict[str, _Cell]]
"""Game → player → score."""


def demo_command(
    tasks: int = tasks_option(50, "Tasks per game.", min=2),
    seed: int = TASK_SEED,
    out: Path = out_option("Where to write the page.", Path("demo.html")),
    as_json: bool = json_option("Print one JSON object with the scores instead of the table."),
) -> None:
    """Play four games with random moves, a trained tiny model and an oracle, and write a page with every episode."""
    with replacing(out) as draft:
        played = asyncio.run(_play(tasks, seed))
        rows: _Rows = {
            game: {
                player: _cell([trajectory for trajectory in episodes if trajectory.task.env == game])
                for player, episodes in played.items()
            }
            for game in GAMES
        }
        # Before the page: if the disk is full, the scores of what was played are not lost with it.
        if as_json:
            typer.echo(encode_json({"page": str(out), "games": rows}).decode())
        else:
            _print_table(rows)
        draft.write_text(_page(played, rows), encoding="utf-8")
    if as_json:
        return
    typer.echo(f"  wrote {out}  (open it in a browser: every episode, turn by turn)\n\n  What to do next:")
    for command, purpose in NEXT:
        typer.echo(f"    {command}\n        {purpose}")


async def _play(tasks: int, seed: int) -> dict[str, list[Trajectory]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    played: dict[str, list[Trajectory]] = {player: [] for player in PLAYERS}
    with Progress(*columns, console=Console(stderr=True)) as bar:
        title = f"playing {len(GAMES)} games × {tasks} tasks × {len(PLAYERS)} players"
        done = bar.add_task(title, total=len(GAMES) * tasks * len(PLAYERS))
        for player, collected in played.items():
            async for trajectory in rollout(GAMES, player, n=tasks, seed=seed):
                collected.append(trajectory)
                bar.advance(done)
    return played


def _cell(trajectories: list[Trajectory]) -> _Cell:
    scores = [Score((), trajectory.task, trajectory.reward) for trajectory in trajectories if trajectory.reward is not None]
    estimate = mean_interval(scores, bounds=(-0.1, 1.0))
    turns = statistics.fmean(len(trajectory.turns) for trajectory in trajectories)
    mean, low, high, long = (round(number, 3) for number in (estimate.mean, estimate.low, estimate.high, turns))
    return _Cell(mean, low, high, long, len(trajectories) - len(scores))


def _print_table(rows: _Rows) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("game", style="cyan", no_wrap=True)
    for player in PLAYERS:
        table.add_column(player, no_wrap=True)
    for game, cells in rows.items():
        table.add_row(_short(game), *(cell.text for cell in cells.values()))
    console = Console()
    console.print(table)
    console.print("mean reward over the tasks, with its 95 % interval\n", style="dim")


def _short(game: str) -> str:
    return game.removeprefix("game:").removesuffix("-v0-easy")


def _page(played: dict[str, list[Trajectory]], rows: _Rows) -> str:
    """The viewer with one run per player, and what to do next on its first page."""
    lines = {
        player: [encode_json(writable(trajectory)) for trajectory in trajectories] for player, trajectories in played.items()
    }
    runs = [run_page(player, episodes) for player, episodes in lines.items()]
    words = {f"vocabulary-{list(PLAYERS).index('tiny')}": encode_json(load_demo_model().renderer.tokenizer.words)}
    return "".join(static_page(runs, list(lines.values()), title="palestra demo", beside=words, note=_note(rows)))


def _note(rows: _Rows) -> str:
    """The text of the first page, in Markdown."""
    table = [
        f"| game | {' | '.join(PLAYERS)} |",
        f"|---{'|---' * len(PLAYERS)}|",
        *(f"| {_short(game)} | {' | '.join(cell.text for cell in cells.values())} |" for game, cells in rows.items()),
    ]
    return "\n".join(
        [
            "## Four games at level easy, three players",
            "Mean reward over the tasks, with its 95 % interval:",
            *table,
            "",
            *(f"- **{player}**: {what}" for player, what in PLAYERS.items()),
            "",
            "Open a player below to see its episodes. In those of `tiny`, the view *Tokens* shows how likely each token was.",
            "## What to do next",
            *(f"- `{command}`: {purpose}" for command, purpose in NEXT),
        ]
    )
