"""The table of checks, and the function that runs it.

A check looks at a ``Survey`` and returns a ``Verdict``. Those named in ``after`` must not have failed before: a fault is named
once, by the check that is about it, and does not drag others with it.
"""

import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from time import perf_counter

from palestra.checking import contract, cost, determinism, scores, secrecy
from palestra.checking.episodes import global_generators, told
from palestra.checking.report import CheckReport, Finding, Status, Verdict, failed, skipped
from palestra.checking.subject import Subject, Target, find
from palestra.checking.survey import Survey, try_out
from palestra.errors import HeldLoop, UsageError

__all__ = ["CHECKS", "Check", "check_env"]

FEWEST = 5
"""Tasks that are played however slow they are."""
PLAYS = 14
"""How often, about, each task is played in a whole check."""
LEAKY = 20
"""Tasks at most for an environment that leaves things behind: the process must last until the end of the check."""


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    run: Callable[[Survey], Verdict]
    after: tuple[str, ...] = ("episodes-run",)
    """Checks without which this one says nothing."""

    @property
    def explanation(self) -> str:
        """What it looks at, in one line."""
        return (self.run.__doc__ or "").partition("\n")[0]


_STEADY = ("episodes-run", "same-here")

CHECKS = (
    Check("episodes-run", contract.episodes_run, after=()),
    Check("same-here", determinism.same_here),
    Check("same-elsewhere", determinism.same_elsewhere, after=_STEADY),
    Check("same-on-replay", determinism.same_on_replay, after=_STEADY),
    Check("global-generators", determinism.global_generators_unused, after=_STEADY),
    Check("observation", contract.observations_are_content),
    Check("info", contract.info_writable),
    Check("reward", contract.rewards_in_range),
    Check("one-end", contract.one_end_only),
    Check("ends", contract.ends_in_time),
    Check("oracle-solves", scores.oracle_solves, after=("episodes-run", "reward")),
    Check("blind-answers", scores.blind_answers_fail),
    Check("constant-answer", scores.constant_answer_fails),
    Check("answer-hidden", secrecy.answer_hidden, after=("episodes-run", "observation")),
    Check("any-text", contract.any_text_survives),
    Check("step-outside", contract.steps_refused_outside),
    Check("fork", contract.fork_independent, after=(*_STEADY, "global-generators")),
    Check("close", contract.close_harmless),
    Check("quick", cost.quick_or_declared),
    Check("nothing-left", cost.nothing_left_behind),
)


def check_env(
    target: Target, *, tasks: int = 200, seed: int = 0, skip: Collection[str] = (), seconds: float = 60.0
) -> CheckReport:
    """Check that ``target`` (a registered id, ``module:Class``, or a class) keeps the contract, and say where it does not.

    It is played on ``tasks`` tasks, with the seeds ``seed``, ``seed + 1`` and so on; on fewer if that would take longer
    than about ``seconds``. The checks named in ``skip`` are left out.
    """
    if unknown := set(skip) - {check.name for check in CHECKS}:
        raise UsageError(f"no check is called {min(unknown)!r}; there are {', '.join(check.name for check in CHECKS)}")
    subject = find(target, tasks, seed)
    began = perf_counter()
    with warnings.catch_warnings(), global_generators(0):
        warnings.simplefilter("ignore", HeldLoop)  # the check "quick" says it better
        survey = _survey(subject, seconds)
        findings = _run(survey, skip)
    return CheckReport(subject.spec.id, len(survey.subject.tasks), tasks, findings, perf_counter() - began)


def _survey(subject: Subject, seconds: float) -> Survey:
    trial = try_out(subject)
    affordable = max(FEWEST, math.floor(seconds / (PLAYS * max(trial.seconds, 1e-6))))
    leaks = trial.left.most >= len(trial.episodes) - 1
    return Survey(subject.with_tasks(min(affordable, LEAKY) if leaks else affordable), trial)


def _run(survey: Survey, skip: Collection[str]) -> tuple[Finding, ...]:
    findings: dict[str, Finding] = {}
    for check in CHECKS:
        verdict = _verdict(check, survey, skip, findings)
        findings[check.name] = Finding(check.name, verdict.status, verdict.message, verdict.detail)
    return tuple(findings.values())


def _verdict(check: Check, survey: Survey, skip: Collection[str], before: dict[str, Finding]) -> Verdict:
    if check.name in skip:
        return skipped(f"left out as asked ({check.name})")
    for name in check.after:
        if before[name].status is Status.FAIL:
            return skipped(f"not checked while {name} fails ({check.name})")
    try:
        return check.run(survey)
    except Exception as error:  # an environment so strange that even looking at it fails
        return failed(f"{check.name} could not be carried out", f"{told(error)}. It was to check this: {check.explanation}")
