"""Whose code runs: every episode is the owner of what its code starts, such as tasks and timers.

The owner stands in a context variable, which everything that asyncio starts inherits. So a task can tell who cancels it.
"""

import asyncio
import contextvars
import ctypes
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec

from palestra.adapters.interrupts import interrupts

__all__ = ["OWNER", "Owner", "cancel_guarded", "guarded_loop", "guarded_task", "is_foreign", "is_ours", "let_go", "never_free"]

_T = TypeVar("_T")


class Owner(msgspec.Struct, eq=False, gc=False):
    """The owner of everything that the code of one episode starts."""

    parent: "Owner | None"
    """The owner of the episode whose code started this episode's rollout."""


OWNER: ContextVar[Owner | None] = ContextVar("episode", default=None)
"""The owner of the code that runs; ``None`` if it belongs to no episode."""


def is_foreign(owner: Owner | None) -> bool:
    """Whether the code that runs belongs to an episode that may not cancel what ``owner`` owns.

    An episode may cancel what it started itself, and what the episodes of its own rollouts started. The handler of a signal may
    cancel everything, whatever code it interrupted.
    """
    caller = OWNER.get()
    if caller is None or interrupts.delivering:
        return False
    while owner is not caller:
        if owner is None:
            return True
        owner = owner.parent
    return False


def let_go(task: asyncio.Task[Any]) -> None:
    """Let the event loop of ``task`` close without it, although it refuses its cancellation."""
    # Documented for authors of tasks: https://docs.python.org/3/library/asyncio-extending.html
    asyncio._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    never_free(task)


def never_free(stubborn: object) -> None:
    """Keep ``stubborn`` for ever: freeing it would run its code again.

    A reference from a module would be dropped when the interpreter ends, and the code would run then.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(stubborn))


class _GuardedTask(asyncio.Task[_T]):
    """A task that belongs to no episode, and refuses to be cancelled by the code of one."""

    def cancel(self, msg: Any | None = None) -> bool:
        return not is_foreign(None) and super().cancel(msg)


def _task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T], **options: Any) -> asyncio.Task[_T]:
    # What episodes start is shared at times: the last one to use it cancels it.
    kind = _GuardedTask if OWNER.get() is None else asyncio.Task
    return kind(work, loop=loop, **options)


def guarded_task(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Run ``work`` in a task that the code of episodes cannot cancel, whoever made the loop and whoever calls this."""
    return _GuardedTask(work, loop=asyncio.get_running_loop(), context=_unowned())


def cancel_guarded(task: asyncio.Task[Any]) -> None:
    """Cancel a task of ``guarded_task``: code of ours does so on behalf of an episode."""
    _unowned().run(task.cancel)


def _unowned() -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(OWNER.set, None)
    return context


def guarded_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop. The code of episodes cannot cancel the tasks of it that no episode has started."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(_task)  # type: ignore[arg-type]
    return loop


def is_ours(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether ``guarded_loop`` made ``loop``."""
    return loop.get_task_factory() is _task
