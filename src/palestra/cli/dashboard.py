"""The output of a training run: a live dashboard in a terminal, otherwise one plain line per step.

Every row is a metric of ``metrics.jsonl``: its name, its latest value, and its history as a line of blocks. Below the rows is
how the time of the latest step was spent.
"""

import math
import sys
from collections.abc import Mapping
from time import monotonic
from typing import Any

import typer

__all__ = ["Dashboard"]

_ROWS: tuple[tuple[str, str, str], ...] = (
    ("reward", "reward", ".3f"),
    ("success", "success", ".1%"),
    ("evaluation/score", "held-out score", ".3f"),
    ("turns", "turns per episode", ".2f"),
    ("tokens_per_episode", "tokens per episode", ".1f"),
    ("cut", "cut replies", ".1%"),
    ("entropy", "entropy", ".3f"),
    ("kl_old", "KL to the old policy", ".2e"),
    ("kl_reference", "KL to the reference", ".2e"),
    ("sampler/kl", "KL to the sampler", ".2e"),
    ("gradient_norm", "gradient norm", ".3f"),
    ("staleness", "staleness", ".0f"),
    ("failed", "failed episodes", ".0f"),
    ("tokens_per_second", "tokens per second", ",.0f"),
)
_SILENT = ("cut", "kl_reference", "staleness", "failed")
"""Hidden as long as they are zero."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLOURS = {
    "wait": "yellow",
    "prepare": "cyan",
    "learn": "green",
    "publish": "magenta",
    "evaluate": "blue",
    "checkpoint": "white",
}
_WORDS = {"wait": "rollout", "prepare": "measure", "learn": "update"}
"""Labels of phases that differ from their names in metrics.jsonl."""
_WIDTH = 40


class Dashboard:
    """Shows the metrics of a run. A context manager; the last state stays on the screen."""

    def __init__(self, title: str, steps: int, *, live: bool | None = None) -> None:
        self.title = title
        self.steps = steps
        self.history: list[Mapping[str, Any]] = []
        self._live: Any = None
        self._began = monotonic()
        self._before = 0
        """Steps of earlier processes of this run."""
        if sys.stdout.isatty() if live is None else live:
            from rich.live import Live

            self._live = Live(auto_refresh=False)

    def __enter__(self) -> "Dashboard":
        typer.echo(f"{self.title}: {self.steps} steps. The model is loaded and checked before the first.")
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of a step."""
        if not self.history:
            self._before = int(metrics["step"]) - 1
        self.history.append(metrics)
        if self._live is None:
            typer.echo(plain_line(metrics, self.steps))
        else:
            self._live.update(self.picture(), refresh=True)

    def picture(self) -> Any:
        """Return the dashboard as a rich renderable."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        latest = self.history[-1]
        table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True, style="green")
        for name, words, form in _ROWS:
            course = [float(metrics[name]) for metrics in self.history if name in metrics]
            if course and (any(course) or name not in _SILENT):
                table.add_row(words, format(course[-1], form), sparkline(course, _WIDTH))
        for name in [name for name in latest if name.startswith("env/") and name.endswith("/reward")]:
            if sum(other.startswith("env/") and other.endswith("/reward") for other in latest) > 1:
                course = [float(metrics[name]) for metrics in self.history if name in metrics]
                table.add_row(name.split("/", 1)[1].rsplit("/", 1)[0], f"{course[-1]:.3f}", sparkline(course, _WIDTH))
        idle = [Text(without_update(latest), "yellow"), Text()] if latest.get("updates") == 0 else []
        parts = [table, Text(), *idle, *_time_split(latest)]
        return Panel(Group(*parts), title=f"[bold]{self.title}[/bold]", subtitle=self._progress(), width=92, padding=(1, 2))

    def _progress(self) -> str:
        done = int(self.history[-1]["step"])
        spent = monotonic() - self._began
        left = spent / max(done - self._before, 1) * (self.steps - done)
        return f"step {done} of {self.steps} · {_duration(spent)} so far · {_duration(left)} left"


def plain_line(metrics: Mapping[str, Any], steps: int) -> str:
    """Return the metrics of one step as a line for logs."""
    shown = [f"{words} {format(float(metrics[name]), form)}" for name, words, form in _ROWS if _is_shown(metrics, name)]
    seconds = sum(value for name, value in metrics.items() if name.startswith("seconds/"))
    idle = [without_update(metrics)] if metrics.get("updates") == 0 else []
    return f"step {int(metrics['step'])}/{steps}  " + "  ".join([*shown, *idle]) + f"  {seconds:.1f} s"


def without_update(metrics: Mapping[str, Any]) -> str:
    """Say why a step made no update, and so has no entropy, KL or gradient."""
    if not metrics.get("members/used", 1):
        return "nothing was learned: no episode could be used"
    if metrics.get("constant_groups") == 1:
        return "nothing was learned: all rewards of each group are equal"
    return "nothing was learned: all advantages are 0"


def _is_shown(metrics: Mapping[str, Any], name: str) -> bool:
    return name in metrics and (bool(metrics[name]) or name not in _SILENT)


def sparkline(values: list[float], width: int) -> str:
    """Draw ``values`` in at most ``width`` characters, each the mean of its part, scaled from the smallest to the largest."""
    finite = [value for value in values if math.isfinite(value)]
    count = min(width, len(finite))
    means = [_mean(finite[len(finite) * i // count : len(finite) * (i + 1) // count]) for i in range(count)]
    if not means:
        return ""
    means = [value / 2 for value in means]  # halved, so that the difference of two large floats is finite
    low, high = min(means), max(means)
    span = high - low or 1.0
    return "".join(_BLOCKS[round((value - low) / span * (len(_BLOCKS) - 1))] for value in means)


def _mean(values: list[float]) -> float:
    return sum(value / len(values) for value in values)


def _time_split(metrics: Mapping[str, Any]) -> list[Any]:
    from rich.text import Text

    laps = {name: float(metrics.get(f"seconds/{name}", 0.0)) for name in _COLOURS}
    total = sum(laps.values()) or 1.0
    bar, legend = Text("time   "), Text("       ")
    for name, seconds in laps.items():
        if seconds / total >= 0.005:
            bar.append("█" * max(round(seconds / total * 60), 1), _COLOURS[name])
            legend.append(f"{_WORDS.get(name, name)} {seconds:.2f} s  ", _COLOURS[name])
    return [bar, legend]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
