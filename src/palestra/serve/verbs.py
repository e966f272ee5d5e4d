"""What each verb of a call does to the environment of a session."""

import asyncio
import logging

import msgspec

from palestra.core import AsyncEnv, Env
from palestra.encoding import clean_text
from palestra.rollout.validation import checked_reset, checked_step
from palestra.serve.host import Host, Offer
from palestra.serve.session import ServerSession
from palestra.serve.shares import Shares
from palestra.serve.wire import Ask, Close, Done, ResetFrame, Result, Shown, StepFrame, Stepped, Suggested, Verb

__all__ = ["VerbRunner"]

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
            stepped = Stepped(*checked_step(await session.env.step(verb.action)))
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
        task = asyncio.create_task(self._close_quietly(session.offer, env))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def all_closed(self) -> None:
        """Wait until every abandoned environment is closed."""
        while self._closing:
            await asyncio.wait(self._closing)

    async def _reset(self, session: ServerSession, verb: ResetFrame) -> Shown:
        session.playing = False
        if session.env is not None and not session.offer.reusable:
            try:
                await self._close(session)
            except Exception:  # noqa: BLE001 - an error of the previous episode must not fail the new one
                _log.exception("%s failed to close", session.offer.spec.id)
        if session.env is None:
            session.env = self._host.build(session.offer)
            self.workers.take(session.owner, session.offer.isolated)
        task = msgspec.structs.replace(verb.task, env=session.offer.spec.id)
        observation, info = checked_reset(await session.env.reset(task=task))
        session.playing = True
        floor, ceiling = self._bounds(session.offer.spec.id, session.env.unwrapped)
        return Shown(observation=observation, info=info, floor=floor, ceiling=ceiling)

    def _bounds(self, id: str, env: Env | AsyncEnv) -> tuple[float, float | None]:
        """Return floor and ceiling of an id. All its tasks share them; computing them may be slow, so it happens once."""
        if id not in self._known_bounds:
            self._known_bounds[id] = (float(env.floor), env.ceiling)
        return self._known_bounds[id]

    async def _close(self, session: ServerSession) -> None:
        env = self._take(session)
        if env is not None:
            await self._host.close(session.offer, env)

    def _take(self, session: ServerSession) -> AsyncEnv | None:
        env, session.env, session.playing = session.env, None, False
        if env is not None:
            self.workers.give_back(session.owner, session.offer.isolated)
        return env

    async def _close_quietly(self, offer: Offer, env: AsyncEnv) -> None:
        try:
            async with asyncio.timeout(self._close_seconds):
                await self._host.close(offer, env)
        except Exception:  # noqa: BLE001 - the environment may raise anything; it is logged
            _log.exception("%s failed to close", offer.spec.id)
