"""The table of checks, and the function that runs it.

A check reads a ``Survey`` and returns a ``Verdict``. It is skipped if one of the checks in ``after`` has failed, so that a
fault is reported once, by the check that is about it.
"""

import gc
import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from time import perf_counter

from palestra.checking import contract, cost, determinism, scores, secrecy
from palestra.checking.episodes import global_generators, told
from palestra.checking.report import CheckReport, Finding, Status, Verdict, failed, skipped
from palestra.checking.shelter import keep_interrupt
from palestra.checking.subject import Subject, Target, find
from palestra.checking.survey import Survey, try_out
from palestra.errors import EventLoopBlocked, UsageError

__all__ = ["CHECKS", "Check", "check_env"]

FEWEST = 5
"""The fewest tasks to play, however slow they are."""
PLAYS = 14
"""About how often a whole check plays each task."""
LEAKY = 20
"""The most tasks for an environment that leaks resources, so that the process survives until the end of the check."""


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    run: Callable[[Survey], Verdict]
    after: tuple[str, ...] = ("episodes-run",)
    """Checks that must not have failed for this one to mean anything."""
    given: tuple[str, ...] = ()
    """Checks whose pass a pass of this one takes for granted. Without it, the pass is taken back when all have run."""

    @property
    def explanation(self) -> str:
        """What it checks, in one line."""
        return (self.run.__doc__ or "").partition("\n")[0]


_STEADY = ("episodes-run", "same-here")
_SCORED = ("episodes-run", "reward")
# Every episode starts from the same state of the global generators. One that draws from them looks the same here, and is not.
_SAME_GIVEN = ("global-generators",)

CHECKS = (
    Check("episodes-run", contract.episodes_run, after=()),
    Check("same-here", determinism.same_here, given=_SAME_GIVEN),
    Check("same-elsewhere", determinism.same_elsewhere, after=_STEADY, given=_SAME_GIVEN),
    Check("same-on-replay", determinism.same_on_replay, after=_STEADY, given=_SAME_GIVEN),
    Check("global-generators", determinism.global_generators_unused, after=_STEADY),
    Check("side-by-side", determinism.same_side_by_side, after=(*_STEADY, "global-generators")),
    Check("observation", contract.observations_are_content),
    Check("info", contract.info_writable),
    Check("reward", contract.rewards_in_range),
    Check("one-end", contract.one_end_only),
    Check("ends", contract.ends_in_time),
    Check("oracle-solves", scores.oracle_solves, after=_SCORED),
    Check("blind-answers", scores.blind_answers_fail, after=_SCORED),
    Check("random-plays", scores.random_plays, after=_SCORED),
    # Every episode starts from the same state of the global generators. An environment that uses them gets the same task each
    # time.
    Check("constant-answer", scores.constant_answer_fails, after=(*_SCORED, "global-generators")),
    # The answers of an oracle that does not solve the tasks are not the answers.
    Check("answer-hidden", secrecy.answer_hidden, after=("episodes-run", "observation", "oracle-solves")),
    Check("any-text", contract.any_text_survives),
    Check("step-outside", contract.steps_refused_outside),
    Check("fork", contract.fork_independent, after=(*_STEADY, "global-generators")),
    Check("close", contract.close_harmless),
    Check("render", contract.render_shows, after=_STEADY),
    Check("rollout", contract.rollout_accepts, after=("episodes-run", "observation", "info", "reward", "one-end", "close")),
    Check("quick", cost.quick_or_declared),
    Check("nothing-left", cost.nothing_left_behind),
)


def check_env(target: Target, *, n: int = 200, seed: int = 0, skip: Collection[str] = (), seconds: float = 60.0) -> CheckReport:
    """Check that an environment keeps the contract.

    Args:
        target: A registered id, ``module:Class``, or a class.
        n: Number of tasks to play. Slow environments are played on fewer tasks, and a row of a data file is one task.
        seed: The tasks have the seeds ``seed``, ``seed + 1`` and so on.
        skip: Names of checks to leave out.
        seconds: About how long the check may take. At least five tasks are played. It fails if a call of an ``AsyncEnv`` takes
            as long, or a minute if that is longer.

    Raises:
        MissingExtra, MissingData: The environment needs something that this machine lacks; the message says what to type.

    Returns:
        A report with one finding per check; ``report.ok`` is false if one failed.
    """
    if unknown := set(skip) - {check.name for check in CHECKS}:
        raise UsageError(f"there is no check {min(unknown)!r}; the checks are {', '.join(check.name for check in CHECKS)}")
    subject = find(target, n, seed, seconds)
    id, asked = subject.spec.id, len(subject.tasks)
    began = perf_counter()
    with warnings.catch_warnings(), global_generators(0), subject.shelter.watched():
        warnings.simplefilter("ignore", EventLoopBlocked)  # the check "quick" reports it
        warnings.simplefilter("ignore", ResourceWarning)  # the check "nothing-left" reports it
        with subject.held_open():
            played, findings = _examine(subject, seconds, skip)
        del subject
        gc.collect()  # warnings about unclosed files are raised now, while they are ignored
    return CheckReport(id, played, asked, findings, perf_counter() - began)


def _examine(subject: Subject, seconds: float, skip: Collection[str]) -> tuple[int, tuple[Finding, ...]]:
    survey = _survey(subject, seconds)
    return len(survey.subject.tasks), _run(survey, skip)


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
    return tuple(_kept(check, findings) for check in CHECKS)


def _kept(check: Check, findings: dict[str, Finding]) -> Finding:
    """Return the finding of ``check``, unless it is a pass that another finding takes back."""
    finding = findings[check.name]
    if finding.status is Status.PASS:
        for name in check.given:
            if findings[name].status is not Status.PASS:
                why = "fails" if findings[name].status is Status.FAIL else "was not checked"
                return Finding(check.name, Status.SKIP, f"not certain while {name} {why} ({check.name})")
    return finding


def _verdict(check: Check, survey: Survey, skip: Collection[str], before: dict[str, Finding]) -> Verdict:
    if check.name in skip:
        return skipped(f"skipped on request ({check.name})")
    for name in check.after:
        if before[name].status is Status.FAIL:
            return skipped(f"not checked while {name} fails ({check.name})")
    try:
        return check.run(survey)
    except BaseException as error:  # noqa: BLE001 - the environment breaks the check itself
        keep_interrupt()
        return failed(f"the check {check.name} raised an exception", f"{told(error)}. It checks this: {check.explanation}")
