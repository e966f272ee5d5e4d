"""What all engines behind HTTP share: several replicas of one server, and how a request finds its way through them.

**Routing.** A session goes back to the replica that holds its prefix, unless that one has much more to do than the idlest.
Any other request goes to the idlest.

**Failure.** A call that fails is made again, elsewhere if there is an elsewhere, after a pause that grows and jitters. What
a failed call may have sampled is thrown away, so a turn is never there twice. A replica that does not answer gets no more
calls until it is healthy again and has been given the current weights: a server that was restarted has the old ones.

**New weights.** ``pause`` makes the servers give up what they are sampling and return it unfinished; those parts are kept, and
go on after ``resume`` as prompts. So every token has one version, the one that was loaded when its part was sent. A part that
was sent before a change of weights and came back whole after it could be of either version: it is sampled again.
"""

import asyncio
import random
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import aiohttp
import msgspec
import numpy as np

from palestra.core import Generation, Sampling, Session
from palestra.encoding import Ints, floats, ints
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.trajectory import Finish, Tokens

__all__ = ["Part", "RemoteEngine", "Replica"]

ATTEMPTS = 6
"""Calls for one part of a completion before the episode is told that the infrastructure failed."""
LONGEST_WAIT = 30.0
"""Seconds between two attempts, at most."""
STICKY_SLACK = 8
"""A session leaves its replica when that has this many calls more under way than the idlest."""


_TROUBLE = (aiohttp.ClientError, TimeoutError, InfrastructureError, ConnectionError)


class Part(NamedTuple):
    """What one call sampled."""

    ids: list[int]
    logprobs: list[float]
    finish: Finish | None
    """``None`` if the server was told to stop in the middle."""


class Replica:
    """One server."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.under_way = 0
        self.healthy = True
        self.version = 0


class RemoteEngine(ABC):
    """Samples through one or more servers. A dialect says how to talk to them."""

    def __init__(self, urls: str | Sequence[str], *, model: str = "", timeout: float = 600.0, seeded: bool = False) -> None:
        urls = [urls] if isinstance(urls, str) else list(urls)
        if not urls:
            raise UsageError("an engine needs the URL of at least one server")
        self.replicas = [Replica(url) for url in urls]
        self.model = model
        """The name the servers know the model by; empty until ``connect`` has asked them."""
        self.context_length = 0
        self.version = 0
        self._timeout = timeout
        self._seeded = seeded
        """Whether a request's seed is sent along. Servers sample seeded requests one by one, and on a CPU vLLM 0.32 dies of a
        seed in a prompt that it prefills in pieces; with other requests in the batch a seed does not repeat a run anyway."""
        self._source: Any = None
        self._sticky: weakref.WeakKeyDictionary[Session, Replica] = weakref.WeakKeyDictionary()
        self._running = asyncio.Event()
        self._running.set()
        self._http: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reviving: dict[Replica, asyncio.Task[None]] = {}

    async def connect(self) -> "RemoteEngine":
        """Ask the servers for the model's name and context length."""
        known = await self._get(self.replicas[0], "/v1/models")
        try:
            (first, *_) = known["data"]
            self.model = self.model or first["id"]
            self.context_length = int(first["max_model_len"])
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(f"{self.replicas[0].url}/v1/models did not say the model's name and length: {error!r}") from None
        return self

    # ---------------------------------------------------------------------------------------------------------- the dialect

    @abstractmethod
    async def _sample(self, replica: Replica, prompt: list[int], sampling: Sampling) -> Part:
        """One call that samples."""

    @abstractmethod
    async def _pause(self, replica: Replica) -> None:
        """Make the server return what it is sampling, unfinished, and sample nothing more."""

    @abstractmethod
    async def _resume(self, replica: Replica) -> None:
        """Let the server sample again."""

    @abstractmethod
    async def _load(self, replica: Replica, source: Any) -> None:
        """Make the server load new weights."""

    # --------------------------------------------------------------------------------------------------------- the protocol

    async def generate(self, prompt: Ints, sampling: Sampling, session: Session | None = None) -> Generation:
        ids: list[int] = []
        logprobs: list[float] = []
        versions: list[tuple[int, int]] = []
        while True:
            left = msgspec.structs.replace(
                sampling,
                max_tokens=sampling.max_tokens - len(ids),
                # A second part with the first one's seed would repeat its random numbers.
                seed=sampling.seed + len(ids) if self._seeded and sampling.seed is not None else None,
            )
            part, version = await self._part([*prompt.tolist(), *ids], left, session)
            if part.ids and (not versions or versions[-1][1] != version):
                versions.append((len(ids), version))
            ids += part.ids
            logprobs += part.logprobs
            finish = part.finish or (Finish.LENGTH if len(ids) >= sampling.max_tokens else None)
            if finish is not None:
                (_, first), *updates = versions or [(0, version)]
                return Generation(Tokens(prompt, ints(ids), floats(logprobs), first, tuple(updates)), finish)

    async def update_weights(self, source: Any, version: int) -> None:
        """Load ``source`` (a folder that every server can read) everywhere and stamp what follows with ``version``."""
        paused = not self._running.is_set()
        if not paused:
            await self.pause()

        async def load(replica: Replica) -> None:
            await self._load(replica, source)
            replica.version = version

        try:
            await self._everywhere(load)
            self._source, self.version = source, version
        finally:
            if not paused:
                await self.resume()

    async def pause(self) -> None:
        self._running.clear()
        await self._everywhere(self._pause)

    async def resume(self) -> None:
        await self._everywhere(self._resume)
        self._running.set()

    async def close(self) -> None:
        for task in self._reviving.values():
            task.cancel()
        if self._http is not None:
            await self._http.close()

    # ------------------------------------------------------------------------------------------------------ routing, retrying

    async def _part(self, prompt: list[int], sampling: Sampling, session: Session | None) -> tuple[Part, int]:
        """One part of a completion, and the version that sampled it."""
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(0.25 * 2**attempt, LONGEST_WAIT))
            await self._running.wait()
            replica = self._choose(session)
            version = replica.version
            replica.under_way += 1
            try:
                part = await self._sample(replica, prompt, sampling)
            except _TROUBLE as error:
                problem = f"{replica.url}: {error!r}"
                if not isinstance(error, InfrastructureError):
                    self._suspect(replica)
                continue
            finally:
                replica.under_way -= 1
            if len(part.ids) != len(part.logprobs):
                raise PolicyError(f"{replica.url} returned {len(part.ids)} ids and {len(part.logprobs)} log-probs")
            if part.finish is not None and replica.version != version:
                problem = f"{replica.url}: the weights changed while the call was under way"
                continue
            return part, version
        raise InfrastructureError(f"{ATTEMPTS} calls failed, the last one at {problem}")

    def _choose(self, session: Session | None) -> Replica:
        fit = [replica for replica in self.replicas if replica.healthy and replica.version == self.version]
        # With nobody fit the call is tried anyway: it fails, waits and comes back, while the replicas are being revived.
        idlest = min(fit or self.replicas, key=lambda replica: replica.under_way)
        if session is None:
            return idlest
        last = self._sticky.get(session)
        if last is not None and last in fit and last.under_way <= idlest.under_way + STICKY_SLACK:
            return last
        self._sticky[session] = idlest
        return idlest

    def _suspect(self, replica: Replica) -> None:
        replica.healthy = False
        if replica not in self._reviving:
            self._reviving[replica] = asyncio.create_task(self._revive(replica))

    async def _revive(self, replica: Replica) -> None:
        """Ask until it answers, then give it the current weights."""
        wait = 0.1
        while not replica.healthy:
            source, version = self._source, self.version
            try:
                await self._get(replica, "/health", decode=False)
                if source is not None:
                    await self._load(replica, source)
            except (*_TROUBLE, PolicyError):
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            replica.version = version
            replica.healthy = version == self.version
        del self._reviving[replica]

    async def _everywhere(self, call: Any) -> None:
        """Tell all healthy replicas. One that fails is suspected; if none is left, that is an error."""
        told = [replica for replica in self.replicas if replica.healthy]
        results = await asyncio.gather(*(call(replica) for replica in told), return_exceptions=True)
        for replica, result in zip(told, results, strict=True):
            if isinstance(result, _TROUBLE):
                self._suspect(replica)
            elif isinstance(result, BaseException):
                raise result
        if not any(replica.healthy for replica in self.replicas):
            raise InfrastructureError(f"no replica is left: {results!r}")

    # ----------------------------------------------------------------------------------------------------------------- HTTP

    async def _post(self, replica: Replica, path: str, body: Any = None) -> Any:
        data = b"" if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        async with self._session().post(replica.url + path, data=data, headers=headers) as answer:
            return await self._answer(answer)

    async def _get(self, replica: Replica, path: str, *, decode: bool = True) -> Any:
        async with self._session().get(replica.url + path) as answer:
            return await self._answer(answer, decode=decode)

    async def _answer(self, answer: aiohttp.ClientResponse, *, decode: bool = True) -> Any:
        data = await answer.read()
        if answer.status == 429 or answer.status >= 500:
            raise InfrastructureError(f"{answer.url} answered {answer.status}: {data[:300]!r}")
        if answer.status >= 400:
            raise PolicyError(f"{answer.url} refused the call ({answer.status}): {data[:600]!r}")
        try:
            return msgspec.json.decode(data) if decode and data else None
        except msgspec.DecodeError as error:
            raise InfrastructureError(f"{answer.url} answered what is not JSON: {error}") from None

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._http is None or self._http.closed or self._loop is not loop:
            self._loop = loop
            # No limit of connections: how many calls are under way is the scheduler's decision.
            timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=10.0)
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        return self._http


def same_ids(echoed: Any, sent: list[int]) -> bool:
    """Whether a server took the prompt as it was sent."""
    return isinstance(echoed, list) and len(echoed) == len(sent) and bool(np.array_equal(echoed, sent))
