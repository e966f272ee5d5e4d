"""What all HTTP engines share: several replicas of one server, and the way of a request through them.

**Routing.** A session returns to the replica that holds its prefix, unless that one has many more running calls than the least
busy replica. Any other request goes to the least busy one.

**Failure.** A failed call is repeated, on another replica if there is one, after a pause that grows and jitters. The tokens of
a failed call are discarded, so a turn is never recorded twice. A replica that does not answer gets no calls until it is
healthy again and has loaded the current weights: a restarted server has the old ones.

**New weights.** ``pause`` makes the servers abort their calls and return the unfinished parts. The engine keeps these parts and
continues them after ``resume`` as prompts. So every token has one version: the one that was loaded when its part was sent. A
part that was sent before a change of weights and returned complete after it could be of either version: it is sampled again.

**Sleep.** A server that shares a GPU with the learner can ``sleep``: it gives its memory back until the next new weights. It
then gets memory for weights first, and for its cache when they are loaded, so that both copies of the weights fit. A server
that fails while it sleeps is left alone until then. Before the first new weights, a server is asked whether it sleeps: an
earlier run may have ended meanwhile.
"""

import asyncio
import random
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import aiohttp
import msgspec
import numpy as np

from palestra.core import EngineSession, Generation, Sampling
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.foundation.encoding import Ints, floats, ints
from palestra.foundation.resources.connections import Connections, HostLookup
from palestra.inference.servers.replica import LoraAdapter, SampledPart, ServerReplica
from palestra.trajectory import Finish, Tokens

__all__ = ["RemoteEngine"]

ATTEMPTS = 6
"""Most calls for one part of a completion, or for one score; then the engine raises ``InfrastructureError``."""
LONGEST_WAIT = 30.0
"""Longest pause between two attempts, in seconds."""
STICKY_SLACK = 8
"""A session leaves its replica when that has this many more running calls than the least busy one."""


_T = TypeVar("_T")
_FAREWELL = 5.0
"""How long ``close`` waits for a server that unloads an adapter, in seconds."""
_TROUBLE = (aiohttp.ClientError, TimeoutError, InfrastructureError, ConnectionError)


class RemoteEngine(ABC):
    """Sample through one or more servers. A subclass implements the server's HTTP interface."""

    def __init__(self, urls: str | Sequence[str], *, model: str = "", timeout: float = 600.0, seeded: bool = False) -> None:
        urls = [urls] if isinstance(urls, str) else list(urls)
        if not urls:
            raise UsageError("an engine needs the URL of at least one server")
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise UsageError(f"{url!r} is not the URL of a server: write http://HOST:PORT")
        self.replicas = [ServerReplica(url) for url in urls]
        self.model = model
        """The model's name on the servers; empty until ``connect`` has asked them."""
        self.context_length = 0
        self.version = 0
        self._timeout = timeout
        self._seeded = seeded
        """Whether to send each request's seed. Servers sample seeded requests one by one, and vLLM 0.32 on a CPU crashes
        on a seed in a prompt that it prefills in pieces. In a batch a seed does not reproduce a run anyway."""
        self._source: Any = None
        self._sticky: weakref.WeakKeyDictionary[EngineSession, ServerReplica] = weakref.WeakKeyDictionary()
        self._running = asyncio.Event()
        self._running.set()
        self._awake = asyncio.Event()
        """Not set from ``sleep`` to the next new weights."""
        self._awake.set()
        self._connections = Connections(self._open)
        self._reviving: dict[ServerReplica, asyncio.Task[None]] = {}

    async def connect(self) -> "RemoteEngine":
        """Ask the servers for the model's name and context length. If that fails, close all connections."""
        try:
            self._introduce(*await self._first_answer("/v1/models"))
        except BaseException:
            await self.close()
            raise
        return self

    async def _first_answer(self, path: str) -> tuple[ServerReplica, Any]:
        """Return the first server that answers, and its answer: another one that is down now may come back later."""
        problems = []
        for replica in self.replicas:
            try:
                return replica, await self._get(replica, path)
            except _TROUBLE as error:
                problems.append(f"{replica.url} does not answer ({str(error) or type(error).__name__})")
        raise InfrastructureError(f"{'; '.join(problems)}. Check the URL, and that the server has finished loading its model")

    def _introduce(self, replica: ServerReplica, models: Any) -> None:
        try:
            (first, *_) = models["data"]
            self.model = self.model or first["id"]
            self.context_length = int(first["max_model_len"])
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(
                f"{replica.url}/v1/models does not list a model with its id and max_model_len ({error!r}): pass the address of "
                f"a vLLM or SGLang server, without /v1 at its end"
            ) from error

    # ---------------------------------------------------------------------------------------------------------- the dialect

    @abstractmethod
    async def _sample(self, replica: ServerReplica, prompt: list[int], sampling: Sampling) -> SampledPart:
        """Make one call that samples."""

    @abstractmethod
    async def _pause(self, replica: ServerReplica) -> None:
        """Make the server return its unfinished samples, and sample nothing more."""

    @abstractmethod
    async def _resume(self, replica: ServerReplica) -> None:
        """Let the server sample again."""

    @abstractmethod
    async def _load(self, replica: ServerReplica, folder: str) -> None:
        """Make the server load the weights in ``folder``."""

    @abstractmethod
    async def _load_adapter(self, replica: ServerReplica, adapter: LoraAdapter) -> None:
        """Make the server load ``adapter`` under its name, also if it has one of that name."""

    @abstractmethod
    async def _unload_adapter(self, replica: ServerReplica, name: str) -> None:
        """Make the server forget an adapter. It raises ``PolicyError`` if the server does not have it."""

    async def _sleep(self, replica: ServerReplica, *, keep_weights: bool) -> None:
        """Make the server give its memory back, that of its weights with or without a copy on the host."""
        raise UsageError(f"{type(self).__name__} has no servers that sleep: leave engine.sleep out")

    async def _sleeps(self, replica: ServerReplica) -> bool:
        """Whether the server has given its memory back."""
        return False

    async def _wake(self, replica: ServerReplica, part: Literal["weights", "kv_cache"]) -> None:
        """Make the server take the memory of its weights or of its cache again. Nothing changes if it is awake."""
        raise NotImplementedError

    # --------------------------------------------------------------------------------------------------------- the protocol

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        ids: list[int] = []
        logprobs: list[float] = []
        versions: list[tuple[int, int]] = []
        while True:
            left = msgspec.structs.replace(
                sampling,
                max_tokens=sampling.max_tokens - len(ids),
                # A second part with the same seed would repeat the random numbers of the first.
                seed=sampling.seed + len(ids) if self._seeded and sampling.seed is not None else None,
            )
            part, version = await self._part([*prompt.tolist(), *ids], left, session)
            if part.ids and (not versions or versions[-1][1] != version):
                versions.append((len(ids), version))
            ids += part.ids
            logprobs += part.logprobs
            finish = part.finish or (Finish.LENGTH if len(ids) >= sampling.max_tokens else None)
            if finish is Finish.LENGTH and part.ids and self._goes_on(sampling.max_tokens - len(ids), len(prompt) + len(ids)):
                finish = None
            if finish is not None:
                (_, first), *updates = versions or [(0, version)]
                return Generation(Tokens(prompt, ints(ids), floats(logprobs), first, tuple(updates)), finish)

    def _goes_on(self, left: int, context: int) -> bool:
        """Whether the server's own limit cut the reply although tokens are ``left`` and the context has room."""
        return left > 0 and context < self.context_length - 1

    async def update_weights(self, source: Any, version: int) -> None:
        """Load ``source`` on all replicas, and record ``version`` for later tokens.

        ``source`` is a model folder that every server can read, a ``LoraAdapter``, or an object of your own with
        ``async def load_into(engine, replica)``, which is called once per replica, and again for a replica that was restarted.
        """
        paused = not self._running.is_set() and self._awake.is_set()
        if self._running.is_set():
            await self.pause()

        async def load(replica: ServerReplica) -> None:
            await self._supply(replica, source)
            replica.version = version

        try:
            await self._everywhere(load)
        except BaseException:
            if not paused:
                with suppress(InfrastructureError):  # the first error names the cause
                    await self.resume()
            raise
        self._source, self.version = source, version
        self._awake.set()
        if not paused:
            await self.resume()

    async def _supply(self, replica: ServerReplica, source: Any) -> None:
        """Give a server the weights. If it sleeps, wake it: its cache gets memory when the weights are loaded."""
        if replica.asleep is None:
            replica.asleep = await self._sleeps(replica)
        if replica.asleep:
            await self._wake(replica, "weights")
        await self._install(replica, source)
        if replica.asleep:
            await self._wake(replica, "kv_cache")
            replica.asleep = False

    async def _install(self, replica: ServerReplica, source: Any) -> None:
        if isinstance(source, LoraAdapter):
            await self._install_adapter(replica, source)
            return
        replica.base = ""
        if hasattr(source, "load_into"):
            await source.load_into(self, replica)
            return
        await self._load(replica, str(source))
        before, replica.adapter = replica.adapter, ""  # it would still sample, beside the new weights
        if before:
            with suppress(PolicyError):  # a server that was restarted does not have it
                await self._unload_adapter(replica, before)

    async def _install_adapter(self, replica: ServerReplica, source: LoraAdapter) -> None:
        before = replica.adapter
        if source.base and replica.base != source.base:
            replica.base = ""
            await self._load_base(replica, source.base)
            replica.base = source.base
        await self._load_adapter(replica, source)
        replica.adapter = source.name
        if not before or before == source.name:
            return
        try:
            await self._unload_adapter(replica, before)
        except PolicyError:
            # The server was restarted, and no call has failed meanwhile: it has the weights that it starts with.
            if source.base:
                replica.adapter = replica.base = ""
                await self._install_adapter(replica, source)

    async def _load_base(self, replica: ServerReplica, base: str) -> None:
        try:
            await self._load(replica, base)
        except (InfrastructureError, PolicyError) as error:
            raise type(error)(
                f"{replica.url} did not load {base}, the model that the adapters change: {error}. Versions of vLLM without its "
                "pull request 39935 cannot load weights with --enable-lora. If the server was started with that model, and "
                'nothing else was loaded since, set engine.transfer = {use = "lora", load_base = false}'
            ) from None

    async def pause(self) -> None:
        self._running.clear()
        await self._everywhere(self._pause)

    async def resume(self) -> None:
        await self._everywhere(self._resume)
        self._running.set()

    async def sleep(self, *, keep_weights: bool = False) -> None:
        """Make the servers give their memory back until ``update_weights`` wakes them. Generations wait until then.

        With ``keep_weights`` the servers keep their weights on the host, for sources that are not all of the weights.
        """

        async def rest(replica: ServerReplica) -> None:
            replica.asleep = True  # also if the call fails: it may have reached the server
            await self._sleep(replica, keep_weights=keep_weights)

        self._awake.clear()
        await self.pause()
        await self._everywhere(rest)

    async def close(self) -> None:
        for task in self._reviving.values():
            task.cancel()
        await asyncio.gather(*(self._forget_adapter(replica) for replica in self.replicas if replica.healthy))
        await self._connections.close()

    async def _forget_adapter(self, replica: ServerReplica) -> None:
        """Unload the adapter that this engine has loaded: every process uses new names, so no other one would unload it."""
        name, replica.adapter = replica.adapter, ""
        if name:
            with suppress(PolicyError, *_TROUBLE):  # the server may have ended first
                async with asyncio.timeout(_FAREWELL):
                    await self._unload_adapter(replica, name)

    def suspect(self, url: str) -> None:
        """Do not use the server at ``url`` until it answers and has loaded the current weights: it has been restarted."""
        for replica in self.replicas:
            if replica.url == url:
                replica.restarts += 1
                replica.asleep = False
                self._suspect(replica)

    async def revived(self) -> None:
        """Wait until a server is healthy again, and let generations continue after an update or a sleep that failed."""
        self._awake.set()
        while not any(replica.healthy for replica in self.replicas):
            await asyncio.wait(list(self._reviving.values()), return_when=asyncio.FIRST_COMPLETED)
        await self.resume()

    # ------------------------------------------------------------------------------------------------------ routing, retrying

    async def _part(self, prompt: list[int], sampling: Sampling, session: EngineSession | None) -> tuple[SampledPart, int]:
        """Return one part of a completion, and the version that sampled it."""

        async def sample(replica: ServerReplica) -> tuple[SampledPart, int]:
            version = replica.version
            part = await self._sample(replica, prompt, sampling)
            if len(part.ids) != len(part.logprobs):
                raise PolicyError(f"{replica.url} returned {len(part.ids)} ids and {len(part.logprobs)} log-probs")
            if part.finish is not None and replica.version != version:
                raise InfrastructureError("the weights changed during the call")
            return part, version

        return (await self._answered(sample, session))[1]

    async def _answered(
        self, ask: Callable[[ServerReplica], Awaitable[_T]], session: EngineSession | None = None
    ) -> tuple[ServerReplica, _T]:
        """Return the answer to a call, and the replica that gave it. A failed call is repeated."""
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                jitter = random.uniform(0.5, 1.0)  # noqa: S311 - no secret
                await asyncio.sleep(jitter * min(0.25 * 2**attempt, LONGEST_WAIT))
            await self._running.wait()
            await self._readiness()
            replica = self._choose(session)
            replica.under_way += 1
            try:
                return replica, await ask(replica)
            except _TROUBLE as error:
                problem = f"{replica.url}: {error!r}"
                if not isinstance(error, InfrastructureError):
                    self._suspect(replica)
            finally:
                replica.under_way -= 1
        raise InfrastructureError(f"{ATTEMPTS} calls failed, the last one at {problem}")

    async def _readiness(self) -> None:
        """Wait until a server is healthy. One that answers but has not loaded the current weights would sample with others."""
        until = asyncio.get_running_loop().time() + self._timeout
        while not any(replica.healthy for replica in self.replicas) and self._reviving:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                raise InfrastructureError(f"no server was healthy within {self._timeout:.0f} s")
            await asyncio.wait(list(self._reviving.values()), timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _choose(self, session: EngineSession | None) -> ServerReplica:
        fit = [replica for replica in self.replicas if replica.healthy and replica.version == self.version]
        # If no replica is healthy, although the call has waited, it is tried: it fails and is repeated.
        idlest = min(fit or self.replicas, key=lambda replica: replica.under_way)
        if session is None:
            return idlest
        last = self._sticky.get(session)
        if last is not None and last in fit and last.under_way <= idlest.under_way + STICKY_SLACK:
            return last
        self._sticky[session] = idlest
        return idlest

    def _suspect(self, replica: ServerReplica) -> None:
        replica.restarts += replica.healthy  # while it is being revived, a call that fails late says nothing new
        replica.healthy = False
        replica.base = ""  # if it was restarted, it has the weights that it starts with
        if replica not in self._reviving:
            self._reviving[replica] = asyncio.create_task(self._revive(replica))

    async def _revive(self, replica: ServerReplica) -> None:
        """Ask the server until it answers, then give it the current weights."""
        wait = 0.1
        while not replica.healthy:
            if replica.asleep:
                await self._awake.wait()  # its memory belongs to the learner now
            source, version, restarts = self._source, self.version, replica.restarts
            try:
                await self._get(replica, "/health", decode=False)
                if source is not None:
                    await self._supply_again(replica, source)
            except (*_TROUBLE, PolicyError):
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            replica.version = version
            replica.healthy = version == self.version and restarts == replica.restarts
        del self._reviving[replica]

    async def _supply_again(self, replica: ServerReplica, source: Any) -> None:
        """Give a server the weights that the others have. Weights that arrive in parts must not arrive while it samples."""
        in_parts = hasattr(source, "load_into")
        if in_parts:
            await self._pause(replica)
        await self._supply(replica, source)
        if in_parts and self._running.is_set():
            await self._resume(replica)

    async def _everywhere(self, call: Any) -> None:
        """Call all healthy replicas. One that fails is suspected; if none is left, raise ``InfrastructureError``."""
        healthy = [replica for replica in self.replicas if replica.healthy]
        results = await asyncio.gather(*(call(replica) for replica in healthy), return_exceptions=True)
        for replica, result in zip(healthy, results, strict=True):
            if isinstance(result, _TROUBLE):
                self._suspect(replica)
            elif isinstance(result, BaseException):
                raise result
        if not any(replica.healthy for replica in self.replicas):
            raise InfrastructureError(f"no healthy replica is left: {results!r}")

    # ----------------------------------------------------------------------------------------------------------------- HTTP

    async def _post(self, replica: ServerReplica, path: str, body: Any = None, *, decode: bool = True) -> Any:
        data = b"" if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        session = await self._connections.session()
        async with session.post(replica.url + path, data=data, headers=headers) as answer:
            return await self._answer(answer, decode=decode)

    async def _get(self, replica: ServerReplica, path: str, *, decode: bool = True) -> Any:
        session = await self._connections.session()
        async with session.get(replica.url + path) as answer:
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
            raise InfrastructureError(f"{answer.url} sent an answer that is not JSON: {error}") from error

    def _open(self) -> aiohttp.ClientSession:
        # No limit on connections: the scheduler decides how many calls run at once.
        timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=10.0)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, resolver=HostLookup()), timeout=timeout)


def same_ids(echoed: Any, sent: list[int]) -> bool:
    """Return whether a server used the prompt exactly as it was sent."""
    return isinstance(echoed, list) and len(echoed) == len(sent) and bool(np.array_equal(echoed, sent))
