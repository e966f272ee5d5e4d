"""``palestra plot``: learning curves of training runs. Runs that differ only in their seed form one curve."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import typer

from palestra.cli.options import out_option
from palestra.cli.results import JSON, show
from palestra.durable import Inside, read_lines, write_whole
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.installation import how_to_install
from palestra.plots.curves import Course, learning_curves

__all__ = ["plot_command"]

_USUAL = ("reward", "success", "turns", "entropy")
_AXES = {"step": "step", "tokens": "tokens learned from", "seconds": "seconds"}
_TRAINING = "training"
"""The kind of a training run in its ``config.json``."""
_SAME_KIND = ("seed", "steps", "checkpoint_every", "keep", "samples")
"""Keys that may differ between runs of one kind."""


def plot_command(
    runs: list[Path] = typer.Argument(..., metavar="RUN...", help="Folders of training runs."),
    by: list[str] = typer.Option(
        [], "--by", help="Recipe keys that group the runs; by default all keys that differ, except the seed."
    ),
    metric: list[str] = typer.Option([], "-m", "--metric", help="Name of a metric in metrics.jsonl. May be repeated."),
    x: str = typer.Option("step", "--x", help="The horizontal axis: step, tokens or seconds."),
    smooth: int = typer.Option(1, min=1, help="Average over this number of steps."),
    out: Path = out_option("An .svg or .png file.", Path("curves.svg")),
    as_json: bool = JSON,
) -> None:
    """Draw learning curves: a thin line per seed, their mean, and a 95 % band."""
    if x not in _AXES:
        raise UsageError(f'--x must be one of {", ".join(_AXES)}, got "{x}"')
    if out.suffix not in (".svg", ".png"):
        raise UsageError(f"{out} is neither an .svg nor a .png file: give --out a name that ends in one of these")
    read = [(_config(run), _metrics(run)) for run in runs]
    names = kinds([config for config, _ in read], by)
    known_metrics = {name for _, lines in read for line in lines for name in line}
    chosen = metric or [name for name in _USUAL if name in known_metrics]
    if missing := [name for name in chosen if name not in known_metrics]:
        raise UsageError(f"no run has {', '.join(missing)}; the metrics are {', '.join(sorted(known_metrics - {'step'}))}")
    panels: dict[str, dict[str, list[Course]]] = {}
    for name in chosen:
        courses: dict[str, list[Course]] = defaultdict(list)
        for kind, (_, lines) in zip(names, read, strict=True):
            if (course := _course(lines, name, x, smooth)) is not None:
                courses[kind].append(course)
        panels[name] = dict(courses)
    write_plot(learning_curves(panels, _AXES[x]), out)
    show(as_json, {"file": str(out), "metrics": chosen}, f"wrote {out}")


def kinds(configs: Sequence[Mapping[str, Any]], by: Sequence[str] = ()) -> list[str]:
    """Return a label per run: the values of ``by``, or of every key in which the runs differ, except the seed."""
    flat = [_flat(config) for config in configs]
    keys = list(by) or [
        key
        for key in sorted({key for settings in flat for key in settings})
        if key not in _SAME_KIND and len({repr(settings.get(key)) for settings in flat}) > 1
    ]
    if unknown := [key for key in by if not any(key in settings for settings in flat)]:
        raise UsageError(f"no run has a key {', '.join(unknown)}")
    return [", ".join(f"{key.rpartition('.')[2]} {settings.get(key, 'none')}" for key in keys) or "run" for settings in flat]


def write_plot(svg: str, out: Path) -> None:
    """Write ``svg`` as SVG, or as PNG at twice the size."""
    if out.suffix == ".svg":
        write_whole(out, svg.encode())
        return
    try:
        import resvg_py
    except ImportError:
        raise MissingExtra(f"a PNG needs resvg-py: {how_to_install('track')}; an .svg needs nothing") from None
    write_whole(out, bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=2)))


def _config(run: Path) -> dict[str, Any]:
    if not run.is_dir():
        raise UsageError(f"{run} is not a training run: there is no such folder. Name folders that palestra train has written")
    if not (Inside(run) / "config.json").exists():
        raise UsageError(f"{run} is not a training run: there is no config.json in it")
    try:
        config: dict[str, Any] = msgspec.json.decode((Inside(run) / "config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{run} is not a training run: {error}") from None
    if (kind := config.get("run", _TRAINING)) != _TRAINING:
        article = "an" if str(kind)[:1] in "aeiou" else "a"
        raise UsageError(f"{run} is {article} {kind}, not a training run: look at it with palestra view {run}")
    return config


def _metrics(run: Path) -> list[dict[str, Any]]:
    path = Inside(run) / "metrics.jsonl"
    if not path.exists():
        raise UsageError(f"{run} has no metrics.jsonl: its first step has not ended yet")
    try:
        lines = [msgspec.json.decode(line, type=dict[str, Any]) for line in read_lines(path)]
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} does not contain the metrics of a training run: {error}") from None
    if not lines:
        raise UsageError(f"{path} is empty: the first step has not ended yet")
    return lines


def _course(lines: Sequence[Mapping[str, Any]], name: str, x: str, smooth: int) -> Course | None:
    places: Sequence[float] = {
        "step": [line["step"] for line in lines],
        "tokens": np.cumsum([line.get("tokens", 0) for line in lines]).tolist(),
        "seconds": np.cumsum([sum(v for k, v in line.items() if k.startswith("seconds/")) for line in lines]).tolist(),
    }[x]
    there = [i for i, line in enumerate(lines) if line.get(name) is not None]
    if not there:
        return None
    values = np.array([float(lines[i][name]) for i in there])
    if smooth > 1:
        sums = np.cumsum(np.insert(values, 0, 0.0))
        ends = np.arange(1, len(values) + 1)
        starts = np.maximum(ends - smooth, 0)
        values = (sums[ends] - sums[starts]) / (ends - starts)
    return Course(np.array([float(places[i]) for i in there]), values)


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(data, dict) or not data:
        return {prefix.removesuffix("."): data}
    return {name: value for key, inner in data.items() for name, value in _flat(inner, f"{prefix}{key}.").items()}
