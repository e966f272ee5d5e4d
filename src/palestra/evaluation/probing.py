"""``probe``: play a few hundred episodes and judge whether their tasks can teach the policy. See ``learnability``.

The folder holds three evaluations of the same tasks, so the same call resumes an interrupted probe:

::

    policy/            the model, ``group_size`` episodes per task
    floor/  ceiling/   random actions and the oracle, one episode per task
    probe.json  .md    the result, as data and as a table
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from palestra.adapters.loop_thread import run_anywhere
from palestra.durable import Inside, write_whole
from palestra.errors import UsageError
from palestra.evaluation.folder import read_episodes
from palestra.evaluation.learnability import EpisodeKey, Probe, ProbeAim, learnability
from palestra.evaluation.run import evaluate_async
from palestra.foundation.encoding import encode_json
from palestra.foundation.statistics import Distribution, Estimate
from palestra.rollouts import AnyPolicy, Envs, read_trajectories
from palestra.rollouts.resuming import TRAJECTORIES

__all__ = ["GROUP_SIZE", "TASKS", "probe", "probe_async", "probe_markdown"]

TASKS = 128
"""Enough to tell no group with a spread from one group in 32: 115 tasks without one exclude it at a level of 95 %."""
GROUP_SIZE = 8


def probe(envs: Envs, policy: AnyPolicy, **options: Any) -> Probe:
    """Judge whether ``envs`` can teach ``policy``. Blocks; also works in a notebook. Options as in ``probe_async``."""
    return run_anywhere(probe_async(envs, policy, **options))


async def probe_async(
    envs: Envs,
    policy: AnyPolicy,
    *,
    out: str | Path,
    aim: ProbeAim = ProbeAim(),  # noqa: B008 - an immutable value
    baselines: bool = True,
    n: int = TASKS,
    group_size: int = GROUP_SIZE,
    **play: Any,
) -> Probe:
    """Play ``n`` tasks per environment and return what they can teach ``policy``.

    Args:
        envs: What to play, as in ``evaluate``.
        policy: Who plays, as in ``evaluate``. Its temperature must be above 0, or the members of a group are the same.
        out: The run folder.
        aim: Groups per step and number of held-out tasks of the training that is asked about.
        baselines: Whether random actions and the oracle play the same tasks.
        n: Tasks per environment.
        group_size: Episodes per task; use the group size of the training.
        play: Other keywords of ``evaluate``.

    Raises:
        UsageError: ``group_size`` is below 2, or no task has two episodes with a score.
    """
    if group_size < 2:
        raise UsageError(f"a probe compares the episodes of a task: group_size must be at least 2, got {group_size}")
    folder = Inside(Path(out))
    watch, about = play.pop("watch", None), play.pop("about", None)
    report = await evaluate_async(
        envs, policy, n=n, group_size=group_size, out=(folder / "policy").checked(), about=about, watch=watch, **play
    )
    scores: dict[str, Estimate | None] = {"floor": None, "ceiling": None}
    for name, player in (("floor", "random"), ("ceiling", "oracle")) if baselines else ():
        played = await evaluate_async(envs, player, n=n, out=(folder / name).checked(), **play)
        # An oracle that knows some of the tasks only is no ceiling for all of them: it has no score.
        scores[name] = played.suite.score
    probe = learnability(
        read_episodes((folder / "policy").checked()), _actions(folder / "policy"), issued=report.suite.issued, aim=aim, **scores
    )
    probe = msgspec.structs.replace(probe, about=report.about)
    write_whole(folder / "probe.json", msgspec.json.format(encode_json(probe), indent=2))
    write_whole(folder / "probe.md", probe_markdown(probe).encode())
    return probe


def _actions(folder: Inside) -> dict[EpisodeKey, bytes]:
    return {
        (episode.group, episode.member, episode.player): hashlib.sha256(
            encode_json([turn.completion.text for turn in episode.turns])
        ).digest()
        for episode in read_trajectories(folder / TRAJECTORIES)
    }


# ------------------------------------------------------------------------------------------------------------ what is shown


def probe_markdown(probe: Probe) -> str:
    """Return the verdict, its reasons and the table."""
    verdicts = {"yes": "can teach", "no": "cannot teach", "unclear": "may or may not teach"}
    part = (
        "" if probe.coverage == 1.0 else f" (incomplete: {100 * probe.coverage:.1f} % of the episodes asked for have a score)"
    )
    note = "\n\nThis policy is privileged: it uses the environment itself, so nothing can teach it." if probe.privileged else ""
    lines = [
        f"# {', '.join(probe.envs)} {verdicts[probe.verdict]} {probe.policy}{part}",
        "",
        *(f"- {reason}" for reason in probe.reasons),
        "",
        f"{probe.tasks} tasks, {probe.group_size} episodes each; {100 * probe.coverage:.0f} % of the episodes have a score. "
        f"Intervals are 95 %.{note}",
        "",
        "| figure | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in _rows(probe)),
    ]
    return "\n".join(lines) + "\n"


def _rows(probe: Probe) -> list[tuple[str, str]]:
    return [
        ("score of the model", _shown(probe.score)),
        ("floor: score of random actions", _shown(probe.floor)),
        ("ceiling: score of the oracle", _shown(probe.ceiling)),
        *((f"pass@{k}", _shown(estimate)) for k, estimate in probe.pass_at.items()),
        ("tasks by solved episodes", ", ".join(f"{solved}: {tasks}" for solved, tasks in probe.solved_shares.items()) or "-"),
        ("groups with no variance", _shown(probe.flat)),
        ("groups with no variance that solve their task", f"{probe.flat_solved:.3f}"),
        *((f"groups of {k} with a spread", _shown(estimate)) for k, estimate in probe.spread_by_size.items()),
        (f"informative groups per step of {probe.groups}", _shown(probe.informative, 1)),
        ("share of the spread that does not follow from actions", f"{probe.noise:.3f}"),
        *((f"smallest gain that {n} held-out tasks show", f"{gain:.3f}") for n, gain in probe.visible.items()),
        ("turns per episode", _spread(probe.turns)),
        ("output tokens per episode", _spread(probe.tokens)),
    ]


def _shown(estimate: Estimate | None, digits: int = 3) -> str:
    if estimate is None:
        return "unknown"
    return f"{estimate.mean:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def _spread(values: Distribution | None) -> str:
    if values is None:
        return "unknown"
    return f"median {values.quantiles['0.5']:.0f}, 95 % below {values.quantiles['0.95']:.0f}, mean {values.mean:.1f}"
