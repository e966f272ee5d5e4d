"""The tasks of a training run, and those that it holds out for its evaluations.

An environment without end draws a new task from every seed, so the seeds of training and evaluation are enough to keep them
apart. A finite environment has rows. There the rows that an evaluation plays are left out of training and of the warm start.
Rows are the same if their data has the same hash and they have the same position: a file under two ids is one file.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from palestra.errors import UsageError
from palestra.evaluation.panel import Panel
from palestra.registry import spec
from palestra.rollout.supply import data_digest, data_table, row_at, row_count
from palestra.seeding import derive_seed
from palestra.training.config import TrainConfig
from palestra.trajectory import Task

__all__ = ["TrainingTasks", "data_digests", "held_out_panel", "held_out_seed"]


class TrainingTasks:
    """The tasks of a run's steps and of its warm start.

    Raises:
        UsageError: An evaluation holds out all rows of an environment.

    """

    def __init__(self, config: TrainConfig) -> None:
        self._seed = config.seed
        held_out = _held_out_rows(config)
        self.rows: Mapping[str, Sequence[int] | None] = {env: _rows_left(env, held_out) for env in config.envs}
        """Environment → the rows that training may draw; ``None`` if its tasks never end."""
        if empty := [env for env, rows in self.rows.items() if rows is not None and not rows]:
            raise UsageError(_nothing_left(empty[0], config))

    def task(self, env: str, seed: int, place: int) -> Task:
        """Return the task at ``place`` of the run. A finite environment repeats a row only after all others were drawn."""
        rows = self.rows[env]
        return Task(env, seed) if rows is None else Task(env, seed, index=row_at(rows, self._seed, env, place))


def held_out_seed(config: TrainConfig) -> int:
    """Return the seed of the held-out tasks."""
    return derive_seed(config.seed, "evaluation") % 2**31


def held_out_panel(config: TrainConfig) -> Panel | None:
    """Return the tasks of every evaluation of the run; ``None`` if nothing is evaluated."""
    settings = config.evaluation
    return None if settings is None else Panel.of(settings.envs or tuple(config.envs), settings.n, held_out_seed(config))


def data_digests(config: TrainConfig) -> dict[str, str]:
    """Return environment → hash of its rows, for every finite environment that the run plays."""
    panel = held_out_panel(config)
    specs = [*(spec(env) for env in config.envs), *(panel.source.specs if panel is not None else ())]
    return data_table(specs)


def _held_out_rows(config: TrainConfig) -> Mapping[str, set[int]]:
    """Hash of the data → the rows of it that are held out."""
    rows: dict[str, set[int]] = defaultdict(set)
    panel = held_out_panel(config)
    if panel is not None:
        digests = {known.id: data_digest(known) for known in panel.source.specs}
        for task in panel.tasks:
            if task.index is not None:
                rows[digests[task.env]].add(task.index)
    return rows


def _rows_left(env: str, held_out: Mapping[str, set[int]]) -> Sequence[int] | None:
    known = spec(env)
    count = row_count(known)
    if count is None:
        return None
    away = held_out.get(data_digest(known), set())
    return [row for row in range(count) if row not in away]


def _nothing_left(env: str, config: TrainConfig) -> str:
    count, n = row_count(spec(env)), config.evaluation.n if config.evaluation is not None else 0
    return (
        f"{env} has {count} rows, and evaluation.n = {n} holds out all of them, so none is left to train on: set evaluation.n "
        f'below {count}, or name other questions to evaluate on: evaluation.envs = ["data:held-out.jsonl"]'
    )
