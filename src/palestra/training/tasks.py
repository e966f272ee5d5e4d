"""The tasks of a training run, and those that it holds out for its evaluations.

An environment without end draws a new task from every seed, so the seeds of training and evaluation are enough to keep them
apart. A finite environment has rows. There the rows that an evaluation plays are left out of training and of the warm start.
Rows are the same if their data has the same hash and they have the same position: a file under two ids is one file.

``play.difficulty`` changes how often tasks are drawn (``difficulty``). If it gives every task the weight 0, because the model
solves all of them, tasks are drawn as without it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from palestra.errors import UsageError
from palestra.evaluation.panel import Panel
from palestra.foundation.seeding import derive, derive_seed
from palestra.recipes.config import TrainConfig
from palestra.registry import spec
from palestra.rollouts.supply import data_digest, data_table, row_at, row_count
from palestra.training.algorithms.horizon import StepOutcome
from palestra.training.difficulty import RowOutcome, SolveRate, difficulty_weights, running_rates
from palestra.trajectory import Task

__all__ = ["KnownOutcomes", "TrainingTasks", "data_digests", "held_out_panel", "held_out_seed"]


_UNTRIED = SolveRate(0, 0.0)


class KnownOutcomes(NamedTuple):
    """What is known about tasks when a group starts, by environment, oldest first."""

    envs: Mapping[str, Sequence[StepOutcome]]
    rows: Mapping[str, Sequence[RowOutcome]]

    @classmethod
    def until(
        cls, step: int, envs: Mapping[str, Sequence[StepOutcome]], rows: Mapping[str, Sequence[RowOutcome]]
    ) -> "KnownOutcomes":
        """Return what the steps before ``step`` tell. The outcomes are in the order of the steps."""

        def before(outcomes: Sequence[Any]) -> Sequence[Any]:
            return outcomes[: bisect_left(outcomes, step, key=lambda outcome: outcome.step)]

        return cls(*({env: before(outcomes) for env, outcomes in each.items()} for each in (envs, rows)))


class TrainingTasks:
    """The tasks of a run's steps and of its warm start.

    Raises:
        UsageError: An evaluation holds out all rows of an environment, or ``play.difficulty`` has nothing to choose from.

    """

    def __init__(self, config: TrainConfig) -> None:
        self._seed = config.seed
        self._weights = config.envs
        self._count = config.play.tasks
        self._rule = config.play.difficulty
        self._row_weights: dict[str, tuple[int, npt.NDArray[np.float64]]] = {}
        """Environment → how many outcomes were known, and the weights of its rows then."""
        held_out = _held_out_rows(config)
        self.rows: Mapping[str, Sequence[int] | None] = {env: _rows_left(env, held_out) for env in config.envs}
        """Environment → the rows that training may draw; ``None`` if its tasks never end."""
        if empty := [env for env, rows in self.rows.items() if rows is not None and not rows]:
            raise UsageError(_nothing_left(empty[0], config))
        if self._rule is not None and list(self.rows.values()) == [None]:
            raise UsageError(
                f"play.difficulty has nothing to choose from: {next(iter(self.rows))} is the only environment, and it never "
                "repeats a task. Name several environments in [envs], such as levels of a game, or leave play.difficulty out"
            )

    def draw(self, number: int, outcomes: KnownOutcomes) -> Task:
        """Return the task of the group ``number`` of the run."""
        step, position = divmod(number, self._count)
        names = list(self._weights)
        given = np.array(list(self._weights.values()))
        weights = _or_else(given * self._preferred(names, outcomes), given)
        drawn = derive(self._seed, "mixture", step).choice(len(names), self._count, p=weights / weights.sum())
        env, seed = names[drawn[position]], derive_seed(self._seed, "task", step, position)
        rows = self.rows[env]
        if self._rule is None or rows is None:
            return self.task(env, seed, number)
        weights = self._of_rows(env, rows, outcomes.rows.get(env, ()))
        # Without a row twice in a step, as long as there are enough.
        size = min(self._count, int((weights > 0).sum()))
        chosen = derive(self._seed, "rows", env, step).choice(len(rows), size, replace=False, p=weights / weights.sum())
        return Task(env, seed, index=rows[chosen[position % size]])

    def _preferred(self, names: Sequence[str], outcomes: KnownOutcomes) -> npt.NDArray[np.float64]:
        """The rule's weights of environments without end, which have no rows; 1 for the others."""
        factors = np.ones(len(names))
        endless = [index for index, env in enumerate(names) if self.rows[env] is None]
        if self._rule is not None and endless:
            tried = [(env, outcome.episodes, outcome.successes) for env in names for outcome in outcomes.envs.get(env, ())]
            rates = running_rates(tried)
            factors[endless] = difficulty_weights(self._rule, [rates.get(names[index], _UNTRIED) for index in endless])
        return factors

    def _of_rows(self, env: str, rows: Sequence[int], outcomes: Sequence[RowOutcome]) -> npt.NDArray[np.float64]:
        count, weights = self._row_weights.get(env, (-1, np.ones(0)))
        if count != len(outcomes):
            rates = running_rates((outcome.row, outcome.episodes, outcome.successes) for outcome in outcomes)
            ruled = difficulty_weights(self._rule, [rates.get(row, _UNTRIED) for row in rows])
            weights = _or_else(ruled, np.ones(len(rows)))
            self._row_weights[env] = (len(outcomes), weights)
        return weights

    def task(self, env: str, seed: int, position: int) -> Task:
        """Return the task at ``position`` of the run. A finite environment repeats a row only after all others were drawn."""
        rows = self.rows[env]
        return Task(env, seed) if rows is None else Task(env, seed, index=row_at(rows, self._seed, env, position))


def _or_else(weights: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return ``weights``, or ``others`` if all of them are 0."""
    return weights if weights.any() else others


def held_out_seed(seed: int) -> int:
    """Return the seed of the held-out tasks in a run with ``seed``."""
    return derive_seed(seed, "evaluation") % 2**31


def held_out_panel(config: TrainConfig) -> Panel | None:
    """Return the tasks of every evaluation of the run; ``None`` if nothing is evaluated."""
    settings = config.evaluation
    return None if settings is None else Panel.of(settings.envs or tuple(config.envs), settings.n, held_out_seed(config.seed))


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
        digests = {environment.id: data_digest(environment) for environment in panel.source.specs}
        for task in panel.tasks:
            if task.index is not None:
                rows[digests[task.env]].add(task.index)
    return rows


def _rows_left(env: str, held_out: Mapping[str, set[int]]) -> Sequence[int] | None:
    environment = spec(env)
    count = row_count(environment)
    if count is None:
        return None
    away = held_out.get(data_digest(environment), set())
    return [row for row in range(count) if row not in away]


def _nothing_left(env: str, config: TrainConfig) -> str:
    count, n = row_count(spec(env)), config.evaluation.n if config.evaluation is not None else 0
    return (
        f"{env} has {count} rows, and evaluation.n = {n} holds out all of them, so none is left to train on: set evaluation.n "
        f'below {count}, or name other questions to evaluate on: evaluation.envs = ["data:held-out.jsonl"]'
    )
