"""How the code of strangers runs: in the task of its episode, which knows who cancels it and can leave what will not end.

The code of an environment and of a policy is awaited in ``EpisodeTask``, one asyncio task per episode. ``within`` awaits a
coroutine for a number of seconds. It passes on what the event loop sends to the coroutine, so it can stop doing so: a coroutine
that swallows its cancellation is abandoned after ``GRACE`` seconds, and never runs again. No task of it remains, so the event
loop can close.

A cancellation comes from inside, from outside or from another episode. The task tells them apart by the context of the caller:
every episode has an owner in a context variable, and what its code starts inherits it.

``inside``     by the episode's own code: a timeout, a task group, a mistake. The code gets it. What comes back is a failure.
``outside``    by the scheduler, the caller or the end of the loop. The episode ends within ``STOP_SECONDS``.
``another``    by the code of another episode: refused.
"""

import asyncio
import contextvars
import gc
import math
import types
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

from palestra.adapters.interrupts import interrupts
from palestra.adapters.ownership import OWNER, Owner, is_foreign, let_go, never_free
from palestra.encoding import shown
from palestra.trajectory import Phase, Task

__all__ = ["GRACE", "STOP_SECONDS", "ConsumerWait", "EpisodeTask", "Outcome", "Overrun", "Played", "hosted", "tried", "within"]

GRACE = 1.0
"""Seconds that a cancelled coroutine has to end. Then it is abandoned."""

STOP_SECONDS = 4.0
"""Seconds that an episode has to end after it was cancelled from outside, its cleanup included."""

_T = TypeVar("_T")


class Overrun(BaseException):
    """A call took longer than it may. It derives from ``BaseException`` so that no stranger's code catches it."""

    def __init__(self, *, abandoned: bool) -> None:
        super().__init__()
        self.abandoned = abandoned
        """Whether the call did not end when it was cancelled."""


class Played(Protocol):
    """What this module knows of the episode that is played in a task."""

    phase: Phase
    cancelled_in: Phase | None
    """The phase in which the code of the episode cancelled the task that it runs in."""

    @property
    def task(self) -> Task: ...


class EpisodeTask(asyncio.Task[_T]):
    """The task of one episode, or of one call of it. All calls of an episode share their ``owner``."""

    def __init__(self, work: Coroutine[Any, Any, _T], owner: Owner | None = None) -> None:
        self.owner = owner or Owner(OWNER.get())
        self.episode: Played | None = None
        self.stopping = False
        """Whether the episode was cancelled from outside."""
        self.stop_by = math.inf
        """The event loop's time at which a stopping episode must have ended."""
        self.call: _Call | None = None
        """The call of a stranger's code that is under way."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self.owner)
        super().__init__(work, loop=asyncio.get_running_loop(), context=context)

    def cancel(self, msg: Any | None = None) -> bool:
        if is_foreign(self.owner):
            return False
        if OWNER.get() is not self.owner or interrupts.delivering:
            self.stop()
            return True
        if self.call is None:
            return False
        self.call.cancelled = True
        if self.episode is not None:
            self.episode.cancelled_in = self.episode.phase
        return super().cancel(msg)

    def stop(self) -> None:
        """Cancel the episode from outside. A cleanup that has begun goes on, for as long as there is time."""
        if self.done():
            return
        loop = self.get_loop()
        self.stop_by = min(self.stop_by, loop.time() + STOP_SECONDS)
        repeated, self.stopping = self.stopping, True
        if self.call is None:
            asyncio.Task.cancel(self)
        elif self.call.cleanup:
            self.call.limit(self.stop_by)
        elif not repeated:
            self.call.stop()


class _Call:
    """A stranger's coroutine that is awaited, with its time limit."""

    __slots__ = ("abandoned", "cancelled", "cleanup", "expired", "task", "timer", "until")

    def __init__(self, task: EpisodeTask[Any], until: float, *, cleanup: bool) -> None:
        self.task = task
        self.until = until
        """The event loop's time at which the call must have ended."""
        self.cleanup = cleanup
        self.cancelled = self.expired = self.abandoned = False
        self.timer: asyncio.TimerHandle | None = None
        """Begins to run when the code waits for the first time: many calls never do."""

    def watch_time(self) -> None:
        self.timer = self.task.get_loop().call_at(self.until, self._expire)

    def limit(self, until: float) -> None:
        """Let the call end by ``until``, if that is earlier."""
        if not self.expired and until < self.until:
            self.until = until
            if self.timer is not None:
                self.timer.cancel()
                self.watch_time()

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self._cancel_for_grace()

    def _expire(self) -> None:
        self.expired = True
        self._cancel_for_grace()

    def _cancel_for_grace(self) -> None:
        self.timer = self.task.get_loop().call_later(GRACE, self._abandon)
        self._cancel()

    def _abandon(self) -> None:
        self.abandoned = True
        self._cancel()
        self.task.get_loop().call_soon(self._wake)

    def _wake(self) -> None:
        # A future may accept its cancellation and go on, such as one that gathers tasks which refuse theirs.
        awaited = self.task._fut_waiter  # type: ignore[attr-defined]
        if self.task.call is self and awaited is not None and not awaited.done():
            asyncio.Future.cancel(awaited)

    def _cancel(self) -> None:
        self.cancelled = True
        asyncio.Task.cancel(self.task)


@types.coroutine
def within(seconds: float, work: Coroutine[Any, Any, _T], *, cleanup: bool = False) -> Generator[Any, Any, _T]:
    """Await ``work`` in the task of an episode for at most ``seconds``.

    Raises:
        Overrun: The time is over, whatever ``work`` has answered since.
        asyncio.CancelledError: The episode is stopping and this is no ``cleanup``, or the code of the episode cancelled itself.
        BaseException: What ``work`` raised.
    """
    task = asyncio.current_task()
    assert isinstance(task, EpisodeTask)
    if task.stopping and not cleanup:
        work.close()
        raise asyncio.CancelledError
    until = min(task.get_loop().time() + seconds, task.stop_by)
    call = task.call = _Call(task, until, cleanup=cleanup)
    resume: Any = work.send
    value: Any = None
    result: Any = None
    raised: BaseException | None = None
    while True:
        try:
            waiting = resume(value)
        except StopIteration as end:
            result = end.value
            break
        except BaseException as error:  # noqa: BLE001 - a stranger may raise anything
            raised = error
            break
        if call.timer is None:
            call.watch_time()
        if waiting is not None and not isinstance(waiting, asyncio.Future):
            resume, value = work.throw, TypeError(f"a coroutine of asyncio awaits its futures, got {shown(waiting)}")
            continue
        try:
            value = yield waiting
            resume = work.send
        except GeneratorExit:  # the loop has gone, and with it everything that could run the rest
            _leave(work)
            raise
        except BaseException as error:  # noqa: BLE001 - a stranger's code may raise anything
            if call.abandoned:
                _leave(work)
                break
            resume, value = work.throw, error
    task.call = None
    if call.timer is not None:
        call.timer.cancel()
    if call.cancelled:
        undelivered = yield from _absorbed(task)
        if undelivered and raised is None:
            raised = asyncio.CancelledError()
    if call.expired or call.abandoned:
        _let_go_of_children(task)
    if call.expired:
        raise Overrun(abandoned=call.abandoned)
    if task.stopping and not cleanup:
        raise asyncio.CancelledError
    if raised is not None:
        raise raised
    return result  # type: ignore[no-any-return]


def _absorbed(task: EpisodeTask[Any]) -> Generator[Any, Any, bool]:
    """Take back all cancellations of ``task``, also one that nothing has awaited since. Return whether there was such a one."""
    undelivered = False
    try:
        yield
    except asyncio.CancelledError:
        undelivered = True
    while task.cancelling():
        task.uncancel()
    return undelivered


def _leave(work: Coroutine[Any, Any, Any]) -> None:
    """Let ``work`` free what it holds. What goes on instead is kept as it is for ever: its end would run its code again."""
    chain: list[Any] = []
    awaited: Any = work
    while isinstance(awaited, types.CoroutineType | types.GeneratorType):
        chain.append(awaited)
        awaited = awaited.cr_await if isinstance(awaited, types.CoroutineType) else awaited.gi_yieldfrom
    for awaiting in chain:
        for _ in range(3):
            try:
                awaiting.close()
            except BaseException:  # noqa: BLE001, S112 - it ignored its end, or its cleanup failed: nobody is left to tell
                continue
            break
        else:
            never_free(awaiting)


def _let_go_of_children(task: EpisodeTask[Any]) -> None:
    """Let the event loop close without the tasks that a cancelled episode has started: they may refuse as well."""
    for other in asyncio.all_tasks(task.get_loop()):
        if other is not task and _owner_of(other) is task.owner:
            let_go(other)


def _owner_of(task: asyncio.Task[Any]) -> Owner | None:
    # Task.get_context is new in Python 3.12.
    contexts = (held for held in gc.get_referents(task) if isinstance(held, contextvars.Context))
    return next((context.get(OWNER) for context in contexts), None)


async def hosted(work: Coroutine[Any, Any, _T]) -> _T:
    """Run ``work`` in an ``EpisodeTask`` of its own. A cancellation of the caller stops it, and waits for its end."""
    return await _ended(EpisodeTask(work))


async def _ended(task: EpisodeTask[_T]) -> _T:
    interrupted: list[KeyboardInterrupt] = []

    def interrupt(error: KeyboardInterrupt) -> None:
        interrupted.append(error)
        task.stop()

    stopped: asyncio.CancelledError | None = None
    with interrupts.heard(interrupt):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                stopped = error
                task.stop()
    if interrupted:
        raise interrupted[0]
    if stopped is not None:
        raise stopped
    return task.result()


class Outcome(NamedTuple):
    """What a call of a stranger's code led to."""

    value: Any = None
    error: BaseException | None = None
    """What it raised, of whatever class; ``Overrun`` if its time was over."""

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


async def tried(
    work: Coroutine[Any, Any, Any], seconds: float, owner: Owner | None = None, *, cleanup: bool = False
) -> Outcome:
    """Await one call of a stranger's code outside of a rollout. An exit that it raises does not reach the event loop.

    Raises:
        asyncio.CancelledError: The caller was cancelled. A call that is a ``cleanup`` had ``STOP_SECONDS`` to end.
    """

    async def attempt() -> Outcome:
        try:
            return Outcome(await within(seconds, work, cleanup=cleanup))
        except BaseException as error:  # noqa: BLE001 - a stranger's code may raise anything
            if task.stopping:
                raise asyncio.CancelledError from None
            return Outcome(error=error)

    task = EpisodeTask(attempt(), owner)
    return await _ended(task)


class ConsumerWait(asyncio.Future[None]):
    """What the consumer of a rollout waits for. It notices if the code of an episode cancels the consumer."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._consumer = OWNER.get()
        self._by_episodes = 0
        self._from_outside = False

    def cancel(self, msg: Any | None = None) -> bool:
        if is_foreign(self._consumer):
            self._by_episodes += 1
        else:
            self._from_outside = True
        return super().cancel(msg)

    async def over(self) -> None:
        """Wait. A cancellation by the code of an episode ends the wait and is no cancellation of the consumer."""
        try:
            await self
        except asyncio.CancelledError:
            consumer = asyncio.current_task()
            if self._from_outside or not self._by_episodes or consumer is None:
                raise
            for _ in range(self._by_episodes):
                consumer.uncancel()
