"""An environment that runs on a server and behaves like a local one: ``palestra.make("remote:URL#ID", token=…)``.

The policy does not notice a lost connection, a repeated frame or a late answer: the client resumes the session and sends the
call again under its number, and the server runs it once. If the episode cannot be saved (the lease ran out, or the server was
replaced during the episode), the call raises ``InfrastructureError``, and ``rollout`` plays the task again.
"""

import asyncio
import math
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from palestra import core
from palestra.adapters.meter import MOST_BYTES, MOST_STEPS, LoopMeter
from palestra.adapters.ownership import cancel_guarded, guarded_task
from palestra.core import AsyncEnv
from palestra.errors import (
    EnvError,
    EpisodeError,
    EpisodeOver,
    GraderError,
    InfrastructureError,
    PolicyError,
    SchemaError,
    ToolError,
    UnknownEnv,
    Unsupported,
    UsageError,
)
from palestra.foundation.encoding import clean_text
from palestra.foundation.seeding import fresh_seed
from palestra.serve.link import SILENT_BEATS, Broken, HelloRefused, ServerLink
from palestra.serve.tokens import token_for
from palestra.serve.wire import (
    PROTOCOL_VERSION,
    Ask,
    CallFrame,
    Close,
    Code,
    Done,
    Fault,
    Hello,
    ReplyFrame,
    ResetFrame,
    SeedActions,
    ServerLimits,
    Shown,
    StepFrame,
    Stepped,
    Suggested,
    Verb,
    Welcome,
    check_depth,
    encode_frame,
)
from palestra.trajectory import Content, Task

__all__ = ["RemoteEnv"]

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between attempts to connect: doubled each time, up to the second value."""
GRACE = 2.0
"""Seconds beyond a call's deadline in which the server may still report that it passed."""
LONGEST_CHECK_PAUSE = 0.4
"""Seconds: ``check_reachable`` gives up when its next pause would be longer."""
CONNECT_SECONDS = 5.0
"""Seconds that one attempt to connect may take; less if the server's heartbeat is shorter."""
CLOSE_SECONDS, MOST_PATIENT_CLOSE = 5.0, 0.1
"""Seconds that closing a session may take, and the pause after which no new connection is tried. Then the lease ends it."""

_USAGE = {
    Code.UNSUPPORTED: Unsupported,
    Code.EPISODE_OVER: EpisodeOver,
    Code.UNKNOWN_ENV: UnknownEnv,
    Code.USAGE: UsageError,
    Code.VERSION: UsageError,
    Code.TOO_LARGE: UsageError,
}
_FAILED = {error.boundary: error for error in (PolicyError, EnvError, ToolError, GraderError, InfrastructureError)}
_LATER = (Code.BUSY, Code.DRAINING)

_R = TypeVar("_R", Shown, Stepped, Suggested, Done)


class RemoteEnv(AsyncEnv):
    """One session on a server. ``address`` is ``URL#ID``.

    Without ``token``, the client sends ``PALESTRA_TOKEN``, but only to the servers named in ``PALESTRA_TOKEN_HOST``.
    """

    counts_turns = True  # the server counts them
    reusable = True  # the session is; the server makes a new environment per episode where one is needed

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        deadline: float = 60.0,
        max_message: int = ServerLimits().max_message,
        max_steps: int = MOST_STEPS,
        max_episode_bytes: int = MOST_BYTES,
    ) -> None:
        self._url, mark, self._id = address.partition("#")
        if not mark or not self._id or self._url.partition("://")[0] not in ("http", "https", "ws", "wss"):
            raise UsageError(f'"{address}" is not the address of an environment: write remote:http://HOST:PORT#ID')
        _check_url(self._url)
        self._token = token or token_for(self._url)
        self._deadline = deadline
        self._max_message = max_message
        self._meter = LoopMeter(self._url, max_steps, max_episode_bytes)
        self._seq = self._request = 0
        self._session = ""
        self._floor = 0.0
        self._ceiling: float | None = None
        self._heartbeat = ServerLimits().heartbeat
        self._link: ServerLink | None = None
        self._connecting = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    async def check_reachable(self) -> None:
        """Open the session without an episode: a wrong address, token or id shows before the first episode.

        Raises:
            UsageError: The server cannot be reached, or refuses this client. One that is busy refuses for a while only.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                await self._connected(CONNECT_SECONDS)
            except HelloRefused as error:
                if error.fault.code not in _LATER:
                    raise UsageError(f"{self._url} refuses to play {self._id}: {error}") from None
            except (Broken, SchemaError) as error:
                await self._drop()
                if pause > LONGEST_CHECK_PAUSE:
                    raise UsageError(
                        f"{self._url} cannot be reached: {error}. Start the server, or correct the address"
                    ) from None
                await asyncio.sleep(pause)
                pause *= 2
                continue
            return

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self.task = task or Task(self._id, fresh_seed() if seed is None else seed)
        self._meter.begin()
        shown = await self._call(ResetFrame(task=msgspec.structs.replace(self.task, env=self._id)), Shown)
        check_depth(shown.info)
        self._floor, self._ceiling = shown.floor, shown.ceiling
        return shown.observation, shown.info

    async def step(self, action: str) -> core.Step:
        stepped = await self._call(StepFrame(action=clean_text(action)), Stepped)
        if not math.isfinite(stepped.reward):
            raise InfrastructureError(f"{self._url} sent a reward of {stepped.reward}, which is not a finite number")
        check_depth(stepped.info)
        if not (stepped.terminated or stepped.truncated):
            self._meter.stepped()
        return core.Step(stepped.observation, stepped.reward, stepped.terminated, stepped.truncated, stepped.info)

    async def oracle(self) -> str:
        return (await self._call(Ask(verb="oracle"), Suggested)).action

    async def sample_random_action(self) -> str:
        return (await self._call(Ask(verb="sample_random_action"), Suggested)).action

    async def seed_actions(self, seed: int) -> None:
        await self._call(SeedActions(seed=seed), Done)

    @property
    def floor(self) -> float:
        return self._floor

    @property
    def ceiling(self) -> float | None:
        return self._ceiling

    async def close(self) -> None:
        """End the session. If the server cannot be reached, the lease ends it."""
        if self._keeper is not None:
            cancel_guarded(self._keeper)
            self._keeper = None
        self._meter.begin()  # so that an episode over its limit can still be closed
        try:
            if self._session:
                await self._call(Close(), Done, min(CLOSE_SECONDS, self._deadline))
        except InfrastructureError:
            pass
        finally:
            self._session = ""
            await self._drop()

    # ------------------------------------------------------------------------------------------------------------- calls

    async def _call(self, verb: Verb, kind: type[_R], deadline: float | None = None) -> _R:
        """Run ``verb`` exactly once, over as many connections as that takes."""
        self._seq += 1
        loop = asyncio.get_running_loop()
        limit = deadline or self._deadline
        due = loop.time() + limit
        pause, why = FIRST_PAUSE, ""
        while (left := due + GRACE - loop.time()) > 0:
            try:
                answer = await self._attempt(verb, due, left)
            except (Broken, HelloRefused) as error:
                why = why or str(error)
                wait = self._after(error, verb, pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                await self._drop()
                await asyncio.sleep(min(wait, max(due - loop.time(), 0.0)))
                continue
            if isinstance(answer, ReplyFrame):
                return self._result(answer, kind)
            if answer.code not in _LATER:
                raise self._raised(answer)
            if answer.code is Code.DRAINING and isinstance(verb, ResetFrame):
                await self._forget()  # another server behind the same address may play the new episode
            why = answer.message
            await asyncio.sleep(_between(0.01, answer.retry_after, LONGEST_PAUSE))
        raise InfrastructureError(f"{self._url} did not answer within {limit:g} s: {why or 'no frame arrived'}")

    async def _attempt(self, verb: Verb, due: float, left: float) -> ReplyFrame | Fault:
        loop = asyncio.get_running_loop()
        try:
            link = await self._connected(left)
            self._request += 1
            seconds = _between(0.001, due - loop.time(), link.welcome.max_deadline)
            call = CallFrame(seq=self._seq, request=self._request, deadline=seconds, verb=verb)
            self._check_size(call, link.welcome)
            answer = await link.ask(call, loop.time() + left)
        except SchemaError as error:
            await self._drop()
            raise InfrastructureError(f"{self._url} broke the protocol: {error}") from error
        self._meter.received(link.answer_size)
        self._request = max(self._request, answer.request)
        return answer

    def _after(self, error: Broken | HelloRefused, verb: Verb, pause: float) -> float:
        """Return the seconds to wait before the next attempt; raise if another attempt cannot succeed."""
        if isinstance(error, Broken):
            if isinstance(verb, Close) and pause > MOST_PATIENT_CLOSE:
                raise InfrastructureError(f"{self._url} cannot be reached: {error}")
            return pause
        fault = error.fault
        if fault.code is Code.NO_SESSION and isinstance(verb, ResetFrame):
            self._session = ""
            return 0.0
        if fault.code in _LATER:
            return _between(0.01, fault.retry_after, LONGEST_PAUSE)
        raise self._raised(fault)

    def _result(self, reply: ReplyFrame, kind: type[_R]) -> _R:
        if not isinstance(reply.result, kind):
            raise InfrastructureError(f"{self._url} answered with {type(reply.result).__name__}, not {kind.__name__}")
        return reply.result

    def _raised(self, fault: Fault) -> Exception:
        if fault.code in _USAGE:
            return _USAGE[fault.code](fault.message)
        error: EpisodeError
        if fault.code is Code.FAILED:
            error = _FAILED[fault.boundary](fault.message)
            error.kind = fault.kind
        elif fault.code is Code.DEADLINE:
            error = EnvError(fault.message)
            error.kind = "Deadline"
        else:
            error = InfrastructureError(f"{self._url}: {fault.message} ({fault.code})")
        return error

    def _check_size(self, call: CallFrame, welcome: Welcome) -> None:
        try:
            size = len(encode_frame(call))
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"the message cannot be sent: {error}") from None
        if size > welcome.max_message:
            raise UsageError(f"the message takes {size} bytes; at most {welcome.max_message} can be sent to {self._url}")

    # ------------------------------------------------------------------------------------------------------- connection

    async def _connected(self, seconds: float) -> ServerLink:
        async with self._connecting:
            if self._link is not None and self._link.broken is None:
                return self._link
            hello = Hello(versions=(PROTOCOL_VERSION,), env=self._id, session=self._session, max_message=self._max_message)
            patience = min(seconds, CONNECT_SECONDS, max(1.0, self._heartbeat * SILENT_BEATS))
            link = self._link = await ServerLink.open(self._url, self._token, hello, patience)
            self._heartbeat = link.heartbeat
            if not self._session:
                self._session = link.welcome.session
            if self._keeper is None:
                self._keeper = guarded_task(self._keep())
            return link

    async def _keep(self) -> None:
        """Renew the lease while the policy thinks, over a new connection if the old one is lost."""
        while True:
            await asyncio.sleep(self._heartbeat)
            try:
                link = await self._connected(CONNECT_SECONDS)
                await link.beat()
            except (Broken, HelloRefused, SchemaError, UsageError) as error:
                if isinstance(error, Broken):
                    await self._drop()

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _forget(self) -> None:
        self._session = ""
        await self._drop()


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        fine = bool(parts.hostname) and parts.port != 0 and url.isprintable() and " " not in url
    except ValueError as error:
        raise UsageError(f"{url} is not a valid address: {error}") from None
    if "@" in parts.netloc:
        raise UsageError("an address must not contain a user or password: pass a token instead (make(…, token=…))")
    if not fine:
        raise UsageError(f"{url!r} is not the address of a server: write http://HOST:PORT")


def _between(low: float, value: float, high: float) -> float:
    return min(max(value, low), high) if math.isfinite(value) else low
