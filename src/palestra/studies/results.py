"""The result of one run of a study: a JSON file with the outcome of every held-out task, the curves, and where it was made.

A run writes a file of its own. ``pack_results`` moves the files of a study into one (``packing``), and ``unpack_results`` moves
them back. Readers take both forms; where both have a result, they take the file.

``numbers`` leaves out what depends on the clock and the machine: two runs of one command have equal numbers if their
sampling is reproducible (docs/design/tokens.md).
"""

import fcntl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from palestra.durable import Inside, write_whole
from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import decode_json
from palestra.studies.packing import packed_path, read_packed, write_packed
from palestra.studies.study import Cell, Study

__all__ = [
    "RUNS",
    "BudgetScores",
    "Curves",
    "Made",
    "RunResult",
    "curves_of",
    "name_of",
    "numbers",
    "pack_results",
    "played_path",
    "read_played",
    "read_results",
    "result_path",
    "unpack_results",
    "write_result",
]

RUNS = "runs"

Curves = dict[str, list[float | None]]
"""Metric → one value per step; ``None`` where a step has none."""
Outcomes = dict[str, list[float]]
"""Measure → one value per held-out task."""
_Kind = TypeVar("_Kind")


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
    curves = {name: [step.get(name) for step in steps] for name in names}
    return {
        name: [None if value is None else round(value, 4) for value in values]
        for name, values in curves.items()
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


def name_of(path: Inside) -> str:
    """The name of the result that ``path`` is the file of, such as ``guess/ReBN-0``."""
    return "/".join(path.parts[1:]).removesuffix(".json")


def read_results(folder: Path, study: Study) -> list[RunResult]:
    """Read the results that are there, in the order of environments, arms and seeds."""
    packed = read_packed(folder)
    cells = sorted(study.cells(), key=lambda cell: _order(study, cell))
    results = [(cell, _read(result_path(folder, cell), packed, RunResult)) for cell in cells]
    for cell, result in results:
        if result is not None and result.cell != cell:
            raise UsageError(f"{_source(result_path(folder, cell))} is the result of {result.cell}, not of {cell}")
    return [result for _, result in results if result is not None]


def read_played(folder: Path, environment: str, players: Sequence[str]) -> dict[str, Outcomes]:
    """Read what untrained players scored, as far as they have played."""
    packed = read_packed(folder)
    played = {player: _read(played_path(folder, environment, player), packed, Outcomes) for player in players}
    return {player: outcomes for player, outcomes in played.items() if outcomes is not None}


def pack_results(folder: Path, study: Study) -> tuple[int, int]:
    """Move the files of all results of ``study`` into its packed file, where they replace results of the same name.

    Returns:
        The number of results that were moved, and the number of all results in the packed file.
    """
    paths = [result_path(folder, cell) for cell in study.cells()]
    paths += [played_path(folder, environment, player) for environment in study.environments for player in study.players]
    with _alone(folder):
        read_results(folder, study)  # this and the next raise if a file is no result
        for environment in study.environments:
            read_played(folder, environment, study.players)
        files = {path: path.read_bytes() for path in paths if path.exists()}
        results = {**read_packed(folder), **{name_of(path): content for path, content in files.items()}}
        if files:
            write_packed(folder, results)
        for path, content in files.items():
            if path.read_bytes() == content:  # else a run has written it again meanwhile
                path.unlink()
        for empty in (*dict.fromkeys(path.parent for path in files), Inside(folder) / RUNS):
            if empty.exists() and not empty.names():
                empty.remove()
    return len(files), len(results)


def unpack_results(folder: Path) -> int:
    """Write every packed result that has no file into a file, and remove the packed file.

    Returns:
        The number of packed results.
    """
    with _alone(folder):
        results = read_packed(folder)
        for name, content in results.items():
            path = Inside(folder) / RUNS / f"{name}.json"
            if not path.exists():
                path.parent.mkdir()
                write_whole(path, content + b"\n")
        packed_path(folder).unlink(missing_ok=True)
    return len(results)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process packs or unpacks the results in ``folder``."""
    with Inside(folder).opened() as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _order(study: Study, cell: Cell) -> tuple[int, int, int]:
    return list(study.environments).index(cell.environment), list(study.arms).index(cell.arm), study.seeds.index(cell.seed)


def _read(path: Inside, packed: Mapping[str, bytes], kind: type[_Kind]) -> _Kind | None:
    """Return the result whose file is ``path``, from the file or from ``packed``; ``None`` if neither has it."""
    content = path.read_bytes() if path.exists() else packed.get(name_of(path))
    try:
        return None if content is None else decode_json(content, kind)
    except SchemaError as error:
        raise UsageError(f"{_source(path)} is not the result of a run: {error}. Remove it to make the run again.") from None


def _source(path: Inside) -> str:
    """Where the result is that ``_read`` returns, for messages."""
    return str(path) if path.exists() else f"{name_of(path)} in {packed_path(path.root)}"
