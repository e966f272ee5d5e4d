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
import sys
import types
from collections.abc import Coroutine, Generator
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from palestra.adapters.interrupts import interrupts
from palestra.adapters.ownership import OWNER, Owner, guarded_task, is_foreign, is_ours, let_go, never_free
from palestra.foundation.encoding import shown
from palestra.trajectory import Phase, Task

__all__ = [
    "GRACE",
    "STOP_SECONDS",
    "CallOutcome",
    "ConsumerWait",
    "EpisodeTask",
    "Overrun",
    "WatchedEpisode",
    "hosted",
    "let_the_loop_end",
    "tried",
    "within",
]

GRACE = 1.0
"""Seconds that a cancelled coroutine has to end. Then it is abandoned."""

STOP_SECONDS = 4.0
"""Seconds that an episode has to end after it was cancelled from outside, its cleanup included."""

_T = TypeVar("_T")
_Future = asyncio.Future  # looked up in every turn


class Overrun(BaseException):
    """A call took longer than it may. It derives from ``BaseException`` so that no stranger's code catches it."""

    def __init__(self, *, abandoned: bool) -> None:
        super().__init__()
        self.abandoned = abandoned
        """Whether the call did not end when it was cancelled."""


class WatchedEpisode(Protocol):
    """The episode that is played in a task, as far as the task and the watchdog look at it."""

    phase: Phase
    cancelled_in: Phase | None
    """The phase in which the code of the episode cancelled the task that it runs in."""

    @property
    def task(self) -> Task: ...


class EpisodeTask(asyncio.Task[_T]):
    """The task of one episode, or of one call of it. All calls of an episode share their ``owner``."""

    __slots__ = ("call", "episode", "owner", "stop_by", "stopping")

    def __init__(self, work: Coroutine[Any, Any, _T], owner: Owner | None = None) -> None:
        self.owner = owner or Owner(OWNER.get())
        self.episode: WatchedEpisode | None = None
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

    __slots__ = ("abandoned", "awaited", "cancelled", "cleanup", "expired", "task", "timer", "until")

    def __init__(self, task: EpisodeTask[Any], until: float, *, cleanup: bool) -> None:
        self.task = task
        self.until = until
        """The event loop's time at which the call must have ended."""
        self.cleanup = cleanup
        self.cancelled = self.expired = self.abandoned = False
        self.awaited: asyncio.Future[Any] | None = None
        """The future that the code waits for."""
        self.timer: asyncio.TimerHandle | _Clock | None = None
        """Begins to run when the code waits for the first time: many calls never do."""

    def watch_time(self, seconds: float) -> None:
        """Expire after ``seconds``, which are the same for all episodes of a rollout but not for their cleanups."""
        if self.cleanup:
            self.timer = self.task.get_loop().call_at(self.until, self.expire)
        else:
            self.timer = _Clock.of(self.task.get_loop(), seconds)
            self.timer.add(self)

    def stop_timer(self) -> None:
        if isinstance(self.timer, _Clock):
            self.timer.remove(self)
        elif self.timer is not None:
            self.timer.cancel()

    def limit(self, until: float) -> None:
        """Let the call, which is a cleanup, end by ``until``, if that is earlier."""
        if not self.expired and until < self.until:
            self.until = until
            if self.timer is not None:
                self.stop_timer()
                self.timer = self.task.get_loop().call_at(until, self.expire)

    def stop(self) -> None:
        self.stop_timer()
        self._cancel_for_grace()

    def expire(self) -> None:
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
        if self.task.call is self and self.awaited is not None and not self.awaited.done():
            asyncio.Future.cancel(self.awaited)

    def _cancel(self) -> None:
        self.cancelled = True
        asyncio.Task.cancel(self.task)


class _Clock:
    """The calls under way in an event loop that may all take the same time. One timer of the loop serves all of them.

    Thousands of timers in the loop, of which hardly one ever runs out, would make each of its other timers slower.
    """

    _clocks: ClassVar["WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, _Clock]]"] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._calls: dict[_Call, None] = {}
        """In the order in which they began, which is the order in which they run out."""
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, seconds: float) -> "_Clock":
        """The clock of ``loop`` for calls that may take ``seconds``."""
        clocks = cls._clocks.get(loop)
        if clocks is None:
            clocks = cls._clocks[loop] = {}
        clock = clocks.get(seconds)
        if clock is None:
            clock = clocks[seconds] = cls(loop, seconds)
        return clock

    def add(self, call: _Call) -> None:
        self._calls[call] = None
        if self._timer is None:
            self._timer = self._loop.call_at(call.until, self._ring)

    def remove(self, call: _Call) -> None:
        self._calls.pop(call, None)
        if not self._calls and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._clocks[self._loop].pop(self._seconds, None)

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        for call in list(self._calls):
            if call.until > now:
                self._timer = self._loop.call_at(call.until, self._ring)
                return
            del self._calls[call]
            call.expire()
        self._clocks[self._loop].pop(self._seconds, None)


@types.coroutine
def within(
    task: EpisodeTask[Any], seconds: float, work: Coroutine[Any, Any, _T], *, cleanup: bool = False
) -> Generator[Any, Any, _T]:
    """Await ``work`` in ``task``, the running task of an episode, for at most ``seconds``.

    Raises:
        Overrun: The time is over, whatever ``work`` has answered since.
        asyncio.CancelledError: The episode is stopping and this is no ``cleanup``, or the code of the episode cancelled itself.
        BaseException: What ``work`` raised.
    """
    if task.stopping and not cleanup:
        work.close()
        raise asyncio.CancelledError
    until = min(task.get_loop().time() + seconds, task.stop_by)
    call = task.call = _Call(task, until, cleanup=cleanup)
    thrown: BaseException | None = None
    result: Any = None
    raised: BaseException | None = None
    while True:
        try:
            # Without a bound method in a variable: it would be one more object for each episode that waits.
            waiting = work.send(None) if thrown is None else work.throw(thrown)
            thrown = None
            if call.timer is None:
                call.watch_time(seconds)
            # The short way of every turn. What the event loop throws arrives here, and not in ``work``.
            while isinstance(waiting, _Future) or waiting is None:
                call.awaited = waiting
                yield waiting
                waiting = work.send(None)
            thrown = TypeError(f"a coroutine of asyncio awaits its futures, got {shown(waiting)}")
        except StopIteration as end:
            result = end.value
            break
        except BaseException as error:
            if work.cr_frame is None:  # type: ignore[attr-defined]  # ``work`` has ended by it
                raised = error
                break
            if isinstance(error, GeneratorExit):  # the loop has gone, and with it everything that could run the rest
                _leave(work)
                raise
            if call.abandoned:
                _leave(work)
                break
            thrown = error
    task.call = None
    if call.timer is not None:
        call.stop_timer()
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
    if sys.version_info >= (3, 12):
        return task.get_context().get(OWNER)
    contexts = (held for held in gc.get_referents(task) if isinstance(held, contextvars.Context))
    return next((context.get(OWNER) for context in contexts), None)


def let_the_loop_end() -> None:
    """Let the event loop end although tasks that episodes have left refuse their cancellation.

    Such tasks may serve the next rollout, so they are not touched as long as the loop runs. A program such as ``asyncio.run``
    cancels all tasks when it ends, and waits for them without a limit. Loops of ours see to this themselves.
    """
    if is_ours(asyncio.get_running_loop()):
        return
    here = OWNER.get()
    left = [task for task in asyncio.all_tasks() if not isinstance(task, EpisodeTask) and _owner_of(task) not in (None, here)]
    if left:
        guard = guarded_task(_outlast(left))
        _guards.add(guard)
        guard.add_done_callback(_guards.discard)


_guards: set[asyncio.Task[None]] = set()
"""The event loop holds its tasks weakly."""


async def _outlast(left: list[asyncio.Task[Any]]) -> None:
    try:
        await asyncio.wait(left)
    except asyncio.CancelledError:
        _, refusing = await asyncio.wait(left, timeout=GRACE)
        for task in refusing:
            never_free(task)
            asyncio.Future.cancel(task)  # for all that wait for it, it has ended now, whatever its code does


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


class CallOutcome(NamedTuple):
    """Result of a call of a stranger's code."""

    value: Any = None
    error: BaseException | None = None
    """The exception that it raised, of whatever class; ``Overrun`` if its time was over."""

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


async def tried(
    work: Coroutine[Any, Any, Any], seconds: float, owner: Owner | None = None, *, cleanup: bool = False
) -> CallOutcome:
    """Await one call of a stranger's code outside of a rollout. An exit that it raises does not reach the event loop.

    Raises:
        asyncio.CancelledError: The caller was cancelled. A call that is a ``cleanup`` had ``STOP_SECONDS`` to end.
    """

    async def attempt() -> CallOutcome:
        try:
            return CallOutcome(await within(task, seconds, work, cleanup=cleanup))
        except BaseException as error:  # noqa: BLE001 - a stranger's code may raise anything
            if task.stopping:
                raise asyncio.CancelledError from None
            return CallOutcome(error=error)

    task = EpisodeTask(attempt(), owner)
    return await _ended(task)


class ConsumerWait(asyncio.Future[None]):
    """The future that the consumer of a rollout waits for. It notices if the code of an episode cancels the consumer."""

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
