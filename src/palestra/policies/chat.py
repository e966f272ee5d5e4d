"""A model behind any OpenAI-compatible chat endpoint.

It is for evaluation: the endpoint returns text and no ids, so its trajectories have no segments. A call that fails because
of the network or the server is repeated after growing, jittered pauses. Only a complete answer becomes a turn. An answer "too
many requests" lowers the number of concurrent calls of all episodes. When the budget is used up, episodes stop with the reason
``budget``; only the calls that are running at that moment can exceed it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from palestra.core import Conversation, Sampling, Tool
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.foundation.confidential import mask_url
from palestra.foundation.resources.connections import Connections
from palestra.inference.endpoints import Address
from palestra.policies.chat_wire import ChatAnswer, is_overflow, read_answer, tool_specs, wire_messages
from palestra.policies.history import FullHistory, History
from palestra.policies.limits import Budget, Gate, SpendingRecord
from palestra.policies.shots import NoShots, Shots
from palestra.trajectory import Completion, Finish, Message, Usage

__all__ = ["ChatPolicy", "Endpoint"]


class Endpoint(Address, frozen=True, kw_only=True):
    """The address of a model, and how to call it.

    Example::

        Endpoint("gpt-x", "https://api.example/v1", key_variable="EXAMPLE_KEY")
    """

    timeout: float = 120.0
    """Seconds per call."""
    attempts: int = 8
    """Calls per turn before the episode fails with ``InfrastructureError``."""
    first_attempts: int = 3
    """The same until the first connection succeeds, so that a server that is down is reported within seconds."""
    longest_wait: float = 30.0
    """Largest number of seconds between two attempts."""
    concurrency: int = 4096
    """Largest number of concurrent calls."""
    length_field: str = "max_tokens"
    """The field for the token limit; some models need ``max_completion_tokens``."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """More fields for every call, such as ``{"chat_template_kwargs": {"enable_thinking": False}}``."""


_NO_CONNECTION = "no connection"


class _Overflow(Exception):
    """The conversation does not fit the model."""


class _Again(Exception):
    """The call failed and may be made again."""

    def __init__(
        self, problem: str, reason: str, *, wait: float | None = None, refused: bool = False, lost: bool = False
    ) -> None:
        super().__init__(problem)
        self.reason = reason
        self.wait = wait
        self.refused = refused
        self.lost = lost


class ChatPolicy:
    """A policy that calls a chat endpoint.

    Args:
        endpoint: The model and its address.
        sampling: Temperature, token limit and stop strings.
        history: How much of the episode the model sees; all by default.
        shots: Example turns to show before the episode; none by default.
        tools: Tools to offer as native function calls. The environment must be wrapped in ``UseTools`` with the same tools.
        budget: Where to stop spending.

    Raises:
        UsageError: The address does not begin with ``http://`` or ``https://``.

    Example::

        policy = palestra.ChatPolicy(palestra.Endpoint("gpt-x", "https://api.example/v1"))
        report = palestra.evaluate("game:*-easy", policy, n=100)
    """

    def __init__(
        self,
        endpoint: Endpoint,
        sampling: Sampling | None = None,
        *,
        history: History | None = None,
        shots: Shots | None = None,
        tools: Sequence[Tool] = (),
        budget: Budget | None = None,
    ) -> None:
        endpoint.check()
        self.endpoint = endpoint
        self._address = mask_url(endpoint.base_url)
        parts = urlsplit(endpoint.base_url)  # which may carry a query of its own
        self._url = parts._replace(path=f"{parts.path.rstrip('/')}/chat/completions").geturl()
        self.name = endpoint.model
        self.sampling = sampling or Sampling()
        self.history = history or FullHistory()
        self.shots = shots or NoShots()
        self.budget = budget or Budget()
        self.ledger = SpendingRecord()
        self.gate = Gate(endpoint.concurrency)
        self._native = bool(tools)
        self._fixed = self._fixed_fields(tools)
        self._connections = Connections(self._open)

    async def act(self, conversation: Conversation) -> Completion:
        seed = conversation.seed if self.sampling.seed is None else self.sampling.seed

        async def ask(messages: Sequence[Message]) -> str:
            answer = await self._ask(messages, seed)
            return "" if answer is None else answer.text

        try:
            shown = await self.history.view(conversation, ask)
            answer = await self._ask(await self._with_shots(shown, conversation), seed)
        except _Overflow:
            return Completion("", Finish.OVERFLOW)
        if answer is None:
            return Completion("", Finish.BUDGET)
        finish = Finish.LENGTH if answer.cut else Finish.STOP
        if not answer.text and not answer.reasoning:
            finish = Finish.EMPTY
        return Completion(answer.text, finish, answer.reasoning, usage=self._usage(answer))

    async def _with_shots(self, shown: Sequence[Message], conversation: Conversation) -> Sequence[Message]:
        shots = await self.shots.messages(conversation.task)
        system = 1 if shots and shown[0].role == "system" else 0
        return [*shown[:system], *shots, *shown[system:]] if shots else shown

    async def close(self) -> None:
        """Close the connections. They also close with the event loop."""
        await self._connections.close()

    # ------------------------------------------------------------------------------------------------------------- one answer

    async def _ask(self, messages: Sequence[Message], seed: int) -> ChatAnswer | None:
        """One answer, however many calls it takes; ``None`` if the budget is spent."""
        body = msgspec.json.encode({**self._fixed, "messages": wire_messages(messages, native=self._native), "seed": seed})
        failed: list[_Again] = []
        while len(failed) < self._attempts(failed):
            if failed:
                self.ledger.retries += 1
                await asyncio.sleep(self._pause(len(failed), failed[-1]))
            await self.gate.enter()
            try:
                if self.ledger.exhausts(self.budget):
                    return None
                answer = await self._call(body)
            except _Again as again:
                failed.append(again)
                self.ledger.lost += again.lost
                if again.refused:
                    self.gate.refused(again.wait or 0.0)
                continue
            finally:
                self.gate.leave()
            self.gate.answered()
            answer.retries = dict(Counter(attempt.reason for attempt in failed))
            self.ledger.add(self._usage(answer))
            return answer
        raise InfrastructureError(f"{self._address}: {len(failed)} calls failed, the last one with: {failed[-1]}")

    def _attempts(self, failed: Sequence[_Again]) -> int:
        if self.ledger.calls or any(attempt.reason != _NO_CONNECTION for attempt in failed):
            return self.endpoint.attempts
        return min(self.endpoint.first_attempts, self.endpoint.attempts)

    def _pause(self, attempt: int, problem: _Again) -> float:
        grown: float = min(0.25 * 2**attempt, self.endpoint.longest_wait)
        return max(problem.wait or 0.0, random.uniform(0.5, 1.0) * grown)  # noqa: S311 - the jitter of a retry

    async def _call(self, body: bytes) -> ChatAnswer:
        """One HTTP call."""
        try:
            session = await self._connections.session()
            async with session.post(self._url, data=body) as answer:
                data = await answer.read()
                if answer.status == 200:
                    return self._read(data)
                self._refuse(answer, self.endpoint.without_secrets(data))
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            lost = not isinstance(error, aiohttp.ClientConnectorError)
            reason = "timeout" if isinstance(error, TimeoutError) else "connection lost" if lost else _NO_CONNECTION
            raise _Again(str(error) or repr(error), reason, lost=lost) from error
        raise AssertionError("_refuse always raises")

    def _read(self, data: bytes) -> ChatAnswer:
        """The answer as it is: what the model wrote must not be changed, even if it looks like a part of the address."""
        try:
            return read_answer(data)
        except PolicyError:
            return read_answer(self.endpoint.without_secrets(data))  # this fails too, and its message quotes no secret

    def _refuse(self, answer: aiohttp.ClientResponse, data: bytes) -> None:
        told = f"{answer.status} {data[:300].decode('utf-8', 'replace')}"
        if answer.status in (408, 409, 425, 429) or answer.status >= 500:
            raise _Again(told, str(answer.status), wait=_retry_after(answer), refused=answer.status == 429)
        if answer.status in (400, 413, 422) and is_overflow(data):
            raise _Overflow
        raise PolicyError(f"{self._address} refused the call: {told}")

    def _usage(self, answer: ChatAnswer) -> Usage:
        dollars = self.endpoint.dollars(answer.prompt_tokens, answer.completion_tokens)
        return Usage(answer.prompt_tokens, answer.completion_tokens, dollars, answer.retries)

    def _fixed_fields(self, tools: Sequence[Tool]) -> dict[str, Any]:
        """Return the fields that all calls have in common."""
        most = [self.sampling.max_tokens]
        if self.budget.call_tokens is not None:
            most.append(self.budget.call_tokens)
        if self.budget.call_dollars is not None and self.endpoint.completion_price:
            most.append(int(self.budget.call_dollars / self.endpoint.completion_price * 1e6))
        if min(most) < 1:
            raise UsageError(f"{self.budget} does not pay for a single token of {self.endpoint.model}")
        fields = {**self.endpoint.extra, "model": self.endpoint.model, self.endpoint.length_field: min(most)}
        fields["temperature"] = self.sampling.temperature
        if self.sampling.top_p < 1:
            fields["top_p"] = self.sampling.top_p
        if self.sampling.stop:
            fields["stop"] = list(self.sampling.stop)
        if tools:
            fields["tools"] = tool_specs(tools)
        return fields

    def _open(self) -> aiohttp.ClientSession:
        return self.endpoint.session(self.endpoint.timeout)


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return None
