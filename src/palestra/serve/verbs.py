"""The effect of each verb of a call on the environment of a session."""

import asyncio
import logging
from collections.abc import Coroutine
from time import monotonic
from typing import Any

import msgspec

from palestra.adapters.interrupts import interrupts
from palestra.adapters.ownership import Owner, guarded_task
from palestra.core import AsyncEnv, Env
from palestra.foundation.encoding import clean_text
from palestra.rollouts.driving import CallOutcome, tried
from palestra.rollouts.validation import kept_reset, kept_step
from palestra.serve.host import Host, Offer
from palestra.serve.session import ServerSession
from palestra.serve.shares import Shares
from palestra.serve.wire import Ask, Close, Done, ResetFrame, Result, Shown, StepFrame, Stepped, Suggested, Verb
from palestra.trajectory import message_of, traceback_of

__all__ = ["VerbRunner", "run_now"]

_log = logging.getLogger("palestra.serve")


class VerbRunner:
    """Builds, plays and closes the environments of sessions. ``workers`` counts the worker processes that they hold."""

    def __init__(self, host: Host, workers: Shares, close_seconds: float) -> None:
        self.workers = workers
        self._host = host
        self._close_seconds = close_seconds
        self._known_bounds: dict[str, tuple[float, float | None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def perform(self, session: ServerSession, verb: Verb) -> Result:
        """Run ``verb`` on the environment of ``session``."""
        if isinstance(verb, StepFrame):
            assert session.env is not None
            stepped = Stepped(*kept_step(await session.env.step(verb.action)))
            session.playing = not (stepped.terminated or stepped.truncated)
            return stepped
        if isinstance(verb, ResetFrame):
            return await self._reset(session, verb)
        if isinstance(verb, Close):
            await self._close(session)
            return Done()
        assert session.env is not None
        if isinstance(verb, Ask):
            ask = session.env.oracle if verb.verb == "oracle" else session.env.sample_random_action
            return Suggested(action=clean_text(str(await ask())))
        await session.env.seed_actions(verb.seed)
        return Done()

    def abandon(self, session: ServerSession) -> None:
        """Take the environment from ``session`` and close it in the background."""
        env = self._take(session)
        if env is None:
            return
        task = guarded_task(self._close_quietly(session.offer, env, session.strangers))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def all_closed(self) -> None:
        """Wait until every abandoned environment is closed."""
        while self._closing:
            await asyncio.wait(self._closing)

    async def _reset(self, session: ServerSession, verb: ResetFrame) -> Shown:
        session.playing = False
        if session.env is not None and not session.offer.reusable:
            await self._close_previous(session)
        if session.env is None:
            session.env = self._host.build(session.offer)
            self.workers.take(session.owner, session.offer.isolated)
        task = msgspec.structs.replace(verb.task, env=session.offer.spec.id)
        observation, info = kept_reset(await session.env.reset(task=task))
        session.playing = True
        floor, ceiling = self._bounds(session.offer.spec.id, session.env.unwrapped)
        return Shown(observation=observation, info=info, floor=floor, ceiling=ceiling)

    def _bounds(self, id: str, env: Env | AsyncEnv) -> tuple[float, float | None]:
        """Return floor and ceiling of an id. All its tasks share them; computing them may be slow, so it happens once."""
        if id not in self._known_bounds:
            ceiling = env.ceiling
            self._known_bounds[id] = (float(env.floor), None if ceiling is None else float(ceiling))
        return self._known_bounds[id]

    async def _close_previous(self, session: ServerSession) -> None:
        """Close the environment of the previous episode, whose error must not fail the new one."""
        env = self._take(session)
        assert env is not None
        if session.offer.in_place:
            _log_failed_close(session.offer, run_now(self._host.close(session.offer, env)).error)
        else:
            await self._close_quietly(session.offer, env, session.strangers)

    async def _close(self, session: ServerSession) -> None:
        env = self._take(session)
        if env is not None:
            await self._host.close(session.offer, env)

    def _take(self, session: ServerSession) -> AsyncEnv | None:
        env, session.env, session.playing = session.env, None, False
        if env is not None:
            self.workers.give_back(session.owner, session.offer.isolated)
        return env

    async def _close_quietly(self, offer: Offer, env: AsyncEnv, strangers: Owner) -> None:
        closed = await tried(self._host.close(offer, env), self._close_seconds, strangers, cleanup=True)
        _log_failed_close(offer, closed.error)


def run_now(work: Coroutine[Any, Any, Any]) -> CallOutcome:
    """Return what a coroutine leads to that never suspends."""
    began = monotonic()
    try:
        work.send(None)
    except StopIteration as done:
        return CallOutcome(done.value)
    except BaseException as error:  # a stranger's code may raise anything
        if interrupts.first_since(began) is not None:  # Ctrl-C, and not the environment
            raise
        return CallOutcome(error=error)
    work.close()
    raise AssertionError("an environment that is played in place must not await")


def _log_failed_close(offer: Offer, error: BaseException | None) -> None:
    if error is not None:  # logged as text, because a stranger's exception may fail when it is formatted
        _log.error("%s failed to close: %s\n%s", offer.spec.id, message_of(error), traceback_of(error))
