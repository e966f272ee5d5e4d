"""The result of one run of a study: a JSON file with the outcome of every held-out task, the curves, and where it was made.

``numbers`` leaves out what depends on the clock and the machine: two runs of one command have equal numbers if their
sampling is reproducible (docs/design/tokens.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from palestra.durable import Inside, write_whole
from palestra.encoding import decode_json
from palestra.errors import SchemaError, UsageError
from palestra.studies.study import Cell, Study

__all__ = [
    "RUNS",
    "BudgetScores",
    "Curves",
    "Made",
    "RunResult",
    "curves_of",
    "numbers",
    "played_path",
    "read_played",
    "read_results",
    "result_path",
    "write_result",
]

RUNS = "runs"

Curves = dict[str, list[float | None]]
"""Metric → one value per step; ``None`` where a step has none."""
Outcomes = dict[str, list[float]]
"""Measure → one value per held-out task."""


class BudgetScores(msgspec.Struct, frozen=True):
    """The scores of one model with several budgets, by the study's measure."""

    turns: dict[str, list[float]]
    """Limit of turns → one score per held-out task."""
    samples: list[list[float]]
    """Of every held-out task, the scores of its samples."""


class Made(msgspec.Struct, frozen=True):
    """Where, when and how long: everything that another run of the same command may change."""

    date: str
    machine: str
    commit: str
    """The commit of the source tree; empty for an installed package."""
    versions: dict[str, str]
    seconds: float
    """Wall-clock seconds of training."""
    cpu_seconds: float
    """CPU seconds of the process that ended the run, evaluations included."""
    warm_start_seconds: float
    step_seconds: list[float] = []
    resumed: bool = False
    """Whether an earlier process had begun the run: ``cpu_seconds`` leaves out what that one spent."""


class RunResult(msgspec.Struct, frozen=True):
    """One run."""

    environment: str
    arm: str
    seed: int
    command: str
    """Repeats the run."""
    model: str
    overrides: list[str]
    before: Outcomes
    after: Outcomes
    curves: Curves
    made: Made
    budgets: dict[str, BudgetScores] = {}
    """``before`` and ``after``, if the study asks for other budgets."""
    asked: list[str] = []
    """The first observation of every held-out task, if it identifies the task."""

    @property
    def cell(self) -> Cell:
        """The run that this is the result of."""
        return Cell(self.environment, self.arm, self.seed)


def curves_of(steps: Sequence[Mapping[str, Any]], names: Iterable[str]) -> Curves:
    """The metrics that at least one step has: a step that updates nothing has no entropy, and one whose gradient is not finite
    has no norm of it.
    """
    found = {name: [step.get(name) for step in steps] for name in names}
    return {
        name: [None if value is None else round(value, 4) for value in values]
        for name, values in found.items()
        if any(value is not None for value in values)
    }


def numbers(result: RunResult) -> dict[str, Any]:
    """What a repeated run must reproduce to the last bit."""
    return {name: value for name, value in msgspec.to_builtins(result).items() if name != "made"}


def result_path(folder: Path, cell: Cell) -> Inside:
    """The file of one run."""
    return Inside(folder) / RUNS / f"{cell.name}.json"


def played_path(folder: Path, environment: str, player: str) -> Inside:
    """The file of what ``player``, which is not trained, scored in ``environment``."""
    return result_path(folder, Cell(environment, player, 0)).with_name(f"{player}.json")


def write_result(path: Inside, result: RunResult | Outcomes) -> None:
    """Write ``result`` so that a reader finds all of it or nothing."""
    path.parent.mkdir()
    write_whole(path, msgspec.json.encode(result) + b"\n")


def read_results(folder: Path, study: Study) -> list[RunResult]:
    """Read the results that are there, in the order of environments, arms and seeds."""
    order = {cell: number for number, cell in enumerate(sorted(study.cells(), key=lambda cell: _order(study, cell)))}
    found = [_read(result_path(folder, cell), cell) for cell in order if result_path(folder, cell).exists()]
    return sorted(found, key=lambda result: order[result.cell])


def read_played(folder: Path, environment: str, players: Sequence[str]) -> dict[str, Outcomes]:
    """Read what untrained players scored, as far as they have played."""
    paths = {player: played_path(folder, environment, player) for player in players}
    return {player: decode_json(path.read_bytes(), Outcomes) for player, path in paths.items() if path.exists()}


def _order(study: Study, cell: Cell) -> tuple[int, int, int]:
    return list(study.environments).index(cell.environment), list(study.arms).index(cell.arm), study.seeds.index(cell.seed)


def _read(path: Inside, cell: Cell) -> RunResult:
    try:
        result = decode_json(path.read_bytes(), RunResult)
    except SchemaError as error:
        raise UsageError(f"{path} is not the result of a run: {error}. Remove it to make the run again.") from None
    if result.cell != cell:
        raise UsageError(f"{path} is the result of {result.cell}, not of {cell}")
    return result
