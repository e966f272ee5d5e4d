"""Test-time compute: the score against the turns that an episode may take, and against the samples drawn per task.

The same tasks are played under each turn limit, ``samples`` times each. From the episodes of the longest limit follow the
curves over k samples, each as the mean over all choices of k of a task's episodes:

``pass@k``      at least one of k episodes is solved: what a perfect judge would reach.
``majority``    the most frequent final answer of k episodes.
``best of k``   the episode that a judge prefers; by default the one whose sampled tokens have the highest mean log-prob.

The unit is the task, as in a report: an interval says how far a point would move with other tasks. The folder holds one
evaluation per turn limit, so the same call resumes an interrupted run.

::

    turns-0004/  turns-0008/   what ``palestra eval`` writes, one folder per limit
    scaling.json  .md  .svg    the points, as data, table and figure
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from palestra.durable import Inside, write_whole
from palestra.errors import UsageError
from palestra.evaluation.report import EpisodeScore, Report, episode_of, judged
from palestra.evaluation.run import evaluate_async
from palestra.foundation.encoding import encode_json
from palestra.foundation.references import Role
from palestra.foundation.seeding import derive
from palestra.foundation.statistics import Estimate, Score, mean_interval, mean_of_last, score_bounds
from palestra.plots.bands import Band, band_curves
from palestra.policies.choosing import same_action
from palestra.registry import family_of
from palestra.rollouts import AnyPolicy, Envs, read_trajectories
from palestra.rollouts.resuming import TRAJECTORIES
from palestra.trajectory import Trajectory

__all__ = [
    "JUDGE",
    "Sample",
    "Scaling",
    "best_of_k",
    "estimate_band",
    "highest_of_k",
    "majority_of_k",
    "mean_logprob",
    "scaling_async",
    "scaling_markdown",
]

JUDGE = Role("judge", ("trajectory",), {"likelihood": f"{__name__}:mean_logprob"})
CHOICES = 200
"""Most choices of k episodes per task that a majority is averaged over."""
_OWN = "own"
"""The name of the environments' own turn limit."""


class Scaling(msgspec.Struct, frozen=True):
    """The points of both figures."""

    policy: str
    measure: str
    """``success``, or ``score`` if an environment reports no success."""
    turns: dict[str, Estimate]
    """Turn limit → mean over tasks. ``own`` is the limit of each environment itself."""
    samples: dict[str, dict[str, Estimate]]
    """Curve → number of samples → mean over tasks."""
    coverage: float
    """Share of the planned episodes that have a score. Below 1, the points are those of a part, and their intervals say nothing
    about the rest."""
    privileged: bool = False
    about: dict[str, str] = {}


def mean_logprob(trajectory: Trajectory) -> float | None:
    """Return the mean log-prob of the sampled tokens; ``None`` if the trajectory has none."""
    logprobs = [segment.logprobs for segment in trajectory.segments if len(segment.logprobs)]
    return float(np.concatenate(logprobs).mean()) if logprobs else None


class Sample(NamedTuple):
    """One episode of a task."""

    value: float
    answer: str
    preference: float | None


async def scaling_async(
    envs: Envs,
    policy: AnyPolicy,
    *,
    turns: Sequence[int | None],
    samples: int,
    out: Path,
    judge: str = "likelihood",
    **play: Any,
) -> Scaling:
    """Evaluate ``policy`` under each turn limit and return the points of both figures.

    Args:
        envs: What to play, as in ``evaluate``.
        policy: Who plays, as in ``evaluate``. Its temperature must be above 0, or all samples are the same.
        turns: Turn limits; ``None`` is the environments' own.
        samples: Episodes per task under the longest limit. The other limits have the same number.
        out: The folder.
        judge: What prefers one episode to another: ``likelihood``, or ``module:name`` of a function from a trajectory to a
            number. If an episode has no number, there is no such curve.
        play: Other keywords of ``evaluate``.

    Raises:
        UsageError: There is no turn limit, or no episode has a score.
    """
    if not turns or samples < 1:
        raise UsageError("name at least one turn limit and one sample per task")
    prefer = JUDGE.load(judge)
    limits = sorted(set(turns), key=lambda limit: math.inf if limit is None else limit)
    reports: dict[str, Report] = {}
    episodes: dict[str, list[EpisodeScore]] = {}
    for limit in limits:
        name = _OWN if limit is None else str(limit)
        folder = Inside(out) / _folder(limit)
        reports[name] = await evaluate_async(envs, policy, group_size=samples, max_turns=limit, out=folder.checked(), **play)
        played = [episode_of(trajectory) for trajectory in read_trajectories(folder / TRAJECTORIES)]
        episodes[name] = [episode for episode in judged(played) if episode.reward is not None]
    measure = _measure(episodes)
    means = {name: _estimate([_score(episode, measure) for episode in of_limit]) for name, of_limit in episodes.items()}
    drawn = _samples(read_trajectories(Inside(out) / _folder(limits[-1]) / TRAJECTORIES), measure, prefer)
    last = list(reports.values())[-1]
    scaling = Scaling(
        policy=last.policy,
        measure=measure,
        turns=means,
        samples=_curves(drawn, samples),
        coverage=sum(report.suite.scored for report in reports.values())
        / max(sum(report.suite.issued for report in reports.values()), 1),
        privileged=last.privileged,
        about={**last.about, "samples per task": str(samples), "judge": judge},
    )
    _write(scaling, out)
    return scaling


def _folder(limit: int | None) -> str:
    return f"turns-{_OWN}" if limit is None else f"turns-{limit:04d}"


def _measure(episodes: Mapping[str, Sequence[EpisodeScore]]) -> str:
    """Success if every scored episode has a verdict, otherwise the reward."""
    every = [episode for of_limit in episodes.values() for episode in of_limit]
    if not every or not all(episodes.values()):
        raise UsageError("no episode has a score: look at the reports in the folders turns-…, then run the same command again")
    return "success" if all(episode.success is not None for episode in every) else "score"


def _score(episode: EpisodeScore, measure: str) -> Score:
    assert episode.reward is not None
    value = float(bool(episode.success)) if measure == "success" else episode.reward
    return Score((family_of(episode.env), episode.env), episode.task, value)


def _estimate(scores: Sequence[Score]) -> Estimate:
    return mean_interval(scores, bounds=score_bounds(scores))


def _samples(
    trajectories: Iterable[Trajectory], measure: str, prefer: Callable[..., Any]
) -> dict[tuple[tuple[str, ...], Hashable], list[Sample]]:
    """Return the samples of each task."""
    played = [(episode_of(trajectory), _answer(trajectory), prefer(trajectory)) for trajectory in trajectories]
    tasks: dict[tuple[tuple[str, ...], Hashable], list[Sample]] = defaultdict(list)
    for episode, (_, answer, preference) in zip(judged([episode for episode, _, _ in played]), played, strict=True):
        if episode.reward is not None:
            score = _score(episode, measure)
            tasks[score.path, score.task].append(Sample(score.value, answer, preference))
    return tasks


def _curves(tasks: Mapping[tuple[tuple[str, ...], Hashable], Sequence[Sample]], samples: int) -> dict[str, dict[str, Estimate]]:
    curves: dict[str, Callable[[Sequence[Sample], int], float]] = {"pass@k": highest_of_k, "majority": majority_of_k}
    if all(sample.preference is not None for drawn in tasks.values() for sample in drawn):
        curves["best of k"] = best_of_k
    counts = sorted({k for k in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, samples) if k <= samples})
    estimates: dict[str, dict[str, Estimate]] = {name: {} for name in curves}
    for name, curve in curves.items():
        for k in counts:
            # A task counts only if it has k episodes with a score; Estimate.tasks is their number.
            scores = [Score(path, task, curve(drawn, k)) for (path, task), drawn in tasks.items() if len(drawn) >= k]
            if scores:
                estimates[name][str(k)] = _estimate(scores)
    return estimates


def _answer(trajectory: Trajectory) -> str:
    return same_action(trajectory.turns[-1].completion.text) if trajectory.turns else ""


def highest_of_k(drawn: Sequence[Sample], k: int) -> float:
    """Return the mean of the highest value of k samples, over all choices of k. For 0 and 1 this is pass@k."""
    return mean_of_last(sorted(sample.value for sample in drawn), k)


def best_of_k(drawn: Sequence[Sample], k: int) -> float:
    """Return the mean value of the sample that the judge prefers among k, over all choices of k."""
    groups: dict[float, list[float]] = defaultdict(list)
    for sample in drawn:
        assert sample.preference is not None
        groups[sample.preference].append(sample.value)
    # Equals are chosen at random, so each has the mean value of all.
    ordered = [float(np.mean(groups[key])) for key in sorted(groups) for _ in groups[key]]
    return mean_of_last(ordered, k)


def majority_of_k(drawn: Sequence[Sample], k: int) -> float:
    """Return the mean value of the most frequent answer of k samples, over all choices of k, or over 200 of them."""
    if math.comb(len(drawn), k) <= CHOICES:
        choices: Iterable[Sequence[int]] = combinations(range(len(drawn)), k)
    else:
        rng = derive(0, "majority", len(drawn), k)
        choices = [rng.choice(len(drawn), k, replace=False).tolist() for _ in range(CHOICES)]
    return float(np.mean([_vote([drawn[index] for index in chosen]) for chosen in choices]))


def _vote(drawn: Sequence[Sample]) -> float:
    counts = Counter(sample.answer for sample in drawn)
    most = max(counts.values())
    # Of equally frequent answers, one is chosen at random.
    return float(np.mean([sample.value for sample in drawn if counts[sample.answer] == most]))


# ------------------------------------------------------------------------------------------------------------ what is written


def _write(scaling: Scaling, out: Path) -> None:
    write_whole(Inside(out) / "scaling.json", msgspec.json.format(encode_json(scaling), indent=2))
    write_whole(Inside(out) / "scaling.md", scaling_markdown(scaling).encode())
    write_whole(Inside(out) / "scaling.svg", _figure(scaling).encode())


def scaling_markdown(scaling: Scaling) -> str:
    """Return both tables."""
    note = "\n\nThis policy is privileged: it can ask the environment for its answers." if scaling.privileged else ""
    part = scaling.coverage < 1.0
    lines = [
        f"# Test-time compute of {scaling.policy}{': incomplete, repeat the command to play the rest' if part else ''}",
        "",
        f"Mean {scaling.measure} {'of the episodes with a score' if part else 'with 95 % intervals'}; "
        f"{math.floor(1000 * scaling.coverage) / 10:g} % of the episodes have a score.{note}",
        "",
        "| turns allowed | " + scaling.measure + " |",
        "|---|---|",
        *(f"| {limit} | {_shown(estimate, part=part)} |" for limit, estimate in scaling.turns.items()),
        "",
        "| samples | " + " | ".join(scaling.samples) + " |",
        "|---" * (len(scaling.samples) + 1) + "|",
    ]
    for k in next(iter(scaling.samples.values()), {}):
        lines.append(f"| {k} | " + " | ".join(_shown(curve[k], part=part) for curve in scaling.samples.values()) + " |")
    return "\n".join(lines) + "\n"


def _shown(estimate: Estimate, *, part: bool) -> str:
    if part:
        return f"{estimate.mean:.3f} of {estimate.episodes} episodes"
    return f"{estimate.mean:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _figure(scaling: Scaling) -> str:
    # The environments' own limit has no number, so the figure leaves it out.
    numbered = {limit: estimate for limit, estimate in scaling.turns.items() if limit != _OWN}
    panels: dict[str, tuple[str, dict[str, Band]]] = {}
    if numbered:
        panels[f"{scaling.measure} by turns"] = ("turns allowed", {scaling.policy: estimate_band(numbered)})
    panels[f"{scaling.measure} by samples"] = (
        "samples per task",
        {name: estimate_band(curve) for name, curve in scaling.samples.items()},
    )
    return band_curves(panels, "test-time compute")


def estimate_band(points: Mapping[str, Estimate] | Mapping[int, Estimate]) -> Band:
    """Return the curve of ``points``, which are in increasing order."""
    positions = np.array([float(position) for position in points])
    table = [(estimate.mean, estimate.low, estimate.high) for estimate in points.values()]
    return Band(positions, *(np.array(column) for column in zip(*table, strict=True)))
