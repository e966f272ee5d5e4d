"""What an environment costs others: time on the event loop, and what it leaves behind."""

from palestra.checking.episodes import Episode, as_scripted
from palestra.checking.report import Verdict, failed, passed, shown, skipped, warned
from palestra.checking.survey import Survey
from palestra.core import Env
from palestra.views.direct import LONGEST_HOLD

__all__ = ["nothing_left_behind", "quick_or_declared"]


def quick_or_declared(survey: Survey) -> Verdict:
    """A plain environment that takes long in ``reset`` or ``step`` says so with ``blocking = True``."""
    author = survey.subject.author
    if not isinstance(author, Env):
        return skipped("an AsyncEnv waits without holding others up")
    if author.blocking:
        return skipped("blocking = True: it runs in a worker process")
    slowest = max(survey.ordinary, key=_slowest_call)
    # A busy machine makes any call slow once. What is slow is slow again.
    for _ in range(2):
        if _slowest_call(slowest) <= LONGEST_HOLD:
            return passed(f"no call takes longer than {LONGEST_HOLD * 1000:.0f} ms")
        again = survey.subject.play(slowest.task, slowest.actor, as_scripted(slowest.actions), turns=len(slowest.actions))
        slowest = min(slowest, again, key=_slowest_call)
    verb, seconds = max(_calls(slowest), key=lambda call: call[1])
    return warned(
        f"{verb}() takes {seconds * 1000:.0f} ms (task seed {slowest.task.seed})",
        f"That is longer than {LONGEST_HOLD * 1000:.0f} ms, during which every other episode of the process stands still. Set "
        f"blocking = True on the class (it then runs in a worker process), make it an AsyncEnv that awaits, or make it faster.",
    )


def _calls(episode: Episode) -> list[tuple[str, float]]:
    return [("reset", episode.reset_seconds), *(("step", taken.seconds) for taken in episode.steps)]


def _slowest_call(episode: Episode) -> float:
    return max(seconds for _, seconds in _calls(episode))


def nothing_left_behind(survey: Survey) -> Verdict:
    """After ``close``, no thread, open file or child process remains."""
    episodes = len(survey.trial.episodes) - 1
    # One thing kept for all instances is a cache; one for each episode is a leak.
    left = survey.trial.left._asdict()
    leaks = {kind: sorted(things) for kind, things in left.items() if len(things) >= episodes}
    if not leaks:
        return passed("no thread, file or process left")
    counted = " and ".join(f"{len(things)} {kind}" for kind, things in leaks.items())
    example = next(iter(leaks.values()))[0]
    return failed(
        f"{episodes} closed episodes left {counted} behind",
        f"For example {shown(example, 120)}. Stop, close and wait for in close() whatever the environment starts or opens.",
    )
