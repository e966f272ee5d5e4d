"""The model card of an exported model: where it comes from, how it was trained, and what it scored.

Everything on it is read from the run folder. Numbers that the folder does not hold are left out, never guessed.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from palestra import __version__
from palestra.durable import Inside
from palestra.errors import PalestraError
from palestra.evaluation.folder import read_report
from palestra.evaluation.report import PartialScores
from palestra.evaluation.wording import mean_words
from palestra.recipes.config import TrainConfig
from palestra.recipes.reading import recorded
from palestra.training.heldout import EVALUATIONS
from palestra.training.record import read_metrics

__all__ = ["model_card"]

_POINTS = 12
"""Rows of the table of curves."""
_CURVES = ("reward", "success", "turns", "tokens_per_episode", "entropy", "kl_old", "staleness")


def model_card(run: Path, config: TrainConfig, step: int) -> str:
    """Return the card, in Markdown, of the model after ``step`` steps of the run in ``run``."""
    front = {"library_name": "transformers", "tags": ["palestra", "reinforcement-learning"], "base_model": config.model.path}
    parts = [
        "---",
        *(f"{key}: {msgspec.json.encode(value).decode()}" for key, value in front.items()),
        "---",
        "",
        f"# {Path(config.model.path).name} after {step} steps of reinforcement learning",
        "",
        f"Trained by Palestra {__version__} from `{config.model.path}` on {_listed(config.envs)}.",
        "The weights are those of the checkpoint after this number of steps. `generation_config.json` samples as in training.",
        "",
        *_scores(run),
        *_curves(read_metrics(run) if (Inside(run) / "metrics.jsonl").exists() else [], step),
        "## Recipe",
        "",
        "```json",
        msgspec.json.format(msgspec.json.encode(recorded(config))).decode(),
        "```",
        "",
    ]
    return "\n".join(parts)


def _listed(envs: Mapping[str, float]) -> str:
    return ", ".join(f"`{env}`" for env in envs)


def _scores(run: Path) -> Iterator[str]:
    """The held-out evaluations of the run, each with its 95 % interval."""
    rows = []
    evaluations = Inside(run) / EVALUATIONS
    for folder in (evaluations / name for name in evaluations.names() if name.startswith("step-")):
        try:
            suite = read_report(folder.checked()).suite
        except (PalestraError, OSError):  # an evaluation that was interrupted has no report
            continue
        if suite.scored:
            part = suite.partial or PartialScores(None, None)
            score = mean_words(suite.score, part.score, ".3f")
            success = "" if suite.success is None else f"{suite.success.mean:.3f}"
            rows.append(f"| {int(folder.name.partition('-')[2])} | {score} | {success} | {suite.scored} of {suite.issued} |")
    if rows:
        yield from (
            "## Scores on held-out tasks",
            "",
            "| step | score, 95 % interval | success | episodes |",
            "|---|---|---|---|",
        )
        yield from (*rows, "")


def _curves(lines: Sequence[Mapping[str, Any]], step: int) -> Iterator[str]:
    """The metrics of the training episodes, at a few steps."""
    lines = [line for line in lines if line["step"] <= step]
    names = [name for name in _CURVES if any(name in line for line in lines)]
    if not lines or not names:
        return
    indices = sorted({round(index * (len(lines) - 1) / max(_POINTS - 1, 1)) for index in range(_POINTS)})
    yield from ("## Training", "", f"| step | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|")
    for line in (lines[index] for index in indices):
        yield f"| {line['step']} | {' | '.join(f'{line[name]:.4g}' if name in line else '' for name in names)} |"
    yield ""
