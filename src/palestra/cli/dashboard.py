"""What a training run shows while it runs: a dashboard that lives in a terminal, one plain line a step elsewhere.

Every row is a number of ``metrics.jsonl``: its name, its latest value, its course so far as a line of blocks. Below, where the
time of the latest step went.
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
    ("turns", "turns an episode", ".2f"),
    ("tokens_an_episode", "tokens an episode", ".1f"),
    ("entropy", "entropy", ".3f"),
    ("kl_old", "KL to the old policy", ".2e"),
    ("kl_reference", "KL to the reference", ".2e"),
    ("gradient_norm", "gradient norm", ".3f"),
    ("staleness", "staleness", ".0f"),
    ("failed", "failed episodes", ".0f"),
    ("tokens_a_second", "tokens a second", ",.0f"),
)
_SILENT = ("kl_reference", "staleness", "failed")
"""Not shown where they are always zero."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLOURS = {"wait": "yellow", "prepare": "cyan", "learn": "green", "publish": "magenta", "evaluate": "blue"}
_WORDS = {"wait": "rollout", "prepare": "measure", "learn": "update", "publish": "publish", "evaluate": "evaluate"}
_WIDTH = 40


class Dashboard:
    """Shows a run's metrics. A context manager: on leaving, the last picture stays."""

    def __init__(self, title: str, steps: int, *, live: bool | None = None) -> None:
        self.title = title
        self.steps = steps
        self.history: list[Mapping[str, Any]] = []
        self._live: Any = None
        self._began = monotonic()
        self._first = 0
        if sys.stdout.isatty() if live is None else live:
            from rich.live import Live

            self._live = Live(auto_refresh=False)

    def __enter__(self) -> "Dashboard":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, metrics: Mapping[str, Any]) -> None:
        """Take in a step."""
        if not self.history:
            self._first = int(metrics["step"])
        self.history.append(metrics)
        if self._live is None:
            typer.echo(plain_line(metrics, self.steps))
        else:
            self._live.update(self.picture(), refresh=True)

    def picture(self) -> Any:
        """The dashboard, as rich draws it."""
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
            course = [float(one[name]) for one in self.history if name in one]
            if course and (any(course) or name not in _SILENT):
                table.add_row(words, format(course[-1], form), sparkline(course, _WIDTH))
        for name in [name for name in latest if name.startswith("env/") and name.endswith("/reward")]:
            if sum(one.startswith("env/") and one.endswith("/reward") for one in latest) > 1:
                course = [float(one[name]) for one in self.history if name in one]
                table.add_row(name.split("/", 1)[1].rsplit("/", 1)[0], f"{course[-1]:.3f}", sparkline(course, _WIDTH))
        parts = [table, Text(), *_time_split(latest)]
        return Panel(Group(*parts), title=f"[bold]{self.title}[/bold]", subtitle=self._progress(), width=92, padding=(1, 2))

    def _progress(self) -> str:
        done = int(self.history[-1]["step"]) + 1
        spent = monotonic() - self._began
        left = spent / max(done - self._first, 1) * (self.steps - done)
        return f"step {done} of {self.steps} · {_duration(spent)} so far · {_duration(left)} left"


def plain_line(metrics: Mapping[str, Any], steps: int) -> str:
    """One step in one line, for logs."""
    shown = [f"{words} {format(float(metrics[name]), form)}" for name, words, form in _ROWS if _told(metrics, name)]
    seconds = sum(value for name, value in metrics.items() if name.startswith("seconds/"))
    return f"step {int(metrics['step']) + 1}/{steps}  " + "  ".join(shown) + f"  {seconds:.1f} s"


def _told(metrics: Mapping[str, Any], name: str) -> bool:
    return name in metrics and (bool(metrics[name]) or name not in _SILENT)


def sparkline(values: list[float], width: int) -> str:
    """The course of ``values`` in at most ``width`` characters, each the mean of its share, from the least to the greatest."""
    finite = [value for value in values if math.isfinite(value)]
    count = min(width, len(finite))
    means = [_mean(finite[len(finite) * i // count : len(finite) * (i + 1) // count]) for i in range(count)]
    if not means:
        return ""
    low, high = min(means), max(means)
    span = high - low or 1.0
    return "".join(_BLOCKS[round((value - low) / span * (len(_BLOCKS) - 1))] for value in means)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _time_split(metrics: Mapping[str, Any]) -> list[Any]:
    from rich.text import Text

    laps = {name: float(metrics.get(f"seconds/{name}", 0.0)) for name in _COLOURS}
    total = sum(laps.values()) or 1.0
    bar, legend = Text("time   "), Text("       ")
    for name, seconds in laps.items():
        if seconds / total >= 0.005:
            bar.append("█" * max(round(seconds / total * 60), 1), _COLOURS[name])
            legend.append(f"{_WORDS[name]} {seconds:.2f} s  ", _COLOURS[name])
    return [bar, legend]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
