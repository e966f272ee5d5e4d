"""A model behind any OpenAI-compatible chat endpoint.

Made for evaluation: text comes back, not tokens, so its trajectories have no segments. A call that fails for reasons of the
network or the server is made again, with growing, jittered pauses; only an answer that was read whole becomes a turn, so there
is one turn whatever happened on the way. "Too many requests" narrows how many calls are made at once, for all episodes.
When the budget is spent, episodes stop and say so; it is exceeded by what was in flight at that moment, and by no more.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from palestra.core import Conversation, Sampling, Tool
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.policies.chat_wire import Answer, is_overflow, read_answer, tool_specs, wire_messages
from palestra.policies.history import FullHistory, History
from palestra.policies.limits import Budget, Gate, Ledger
from palestra.policies.shots import NoShots, Shots
from palestra.trajectory import Completion, Finish, Message, Usage

__all__ = ["ChatPolicy", "Endpoint"]


class Endpoint(msgspec.Struct, frozen=True):
    """Where the model is, and how to treat it."""

    model: str
    base_url: str
    """Up to and without ``/chat/completions``."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key. The key itself is never stored or logged."""
    timeout: float = 120.0
    """Seconds for one call."""
    attempts: int = 8
    """Calls for one turn before the episode is told that the infrastructure failed."""
    longest_wait: float = 30.0
    """Seconds between two attempts, at most."""
    concurrency: int = 4096
    """Calls under way at once, at most."""
    prompt_price: float = 0.0
    """Dollars for a million prompt tokens."""
    completion_price: float = 0.0
    """Dollars for a million completion tokens."""
    length_field: str = "max_tokens"
    """Some models want ``max_completion_tokens``."""
    extra: dict[str, Any] = {}
    """Fields of the server's own for every call, such as ``{"chat_template_kwargs": {"enable_thinking": False}}``."""


class _Overflow(Exception):
    """The conversation does not fit the model."""


class _Again(Exception):
    """The call failed and may be made again."""

    def __init__(self, problem: str, *, wait: float | None = None, refused: bool = False, lost: bool = False) -> None:
        super().__init__(problem)
        self.wait = wait
        self.refused = refused
        self.lost = lost


class ChatPolicy:
    """Acts by asking a chat endpoint."""

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
        self.endpoint = endpoint
        self.name = endpoint.model
        self.sampling = sampling or Sampling()
        self.history = history or FullHistory()
        self.shots = shots or NoShots()
        self.budget = budget or Budget()
        self.ledger = Ledger()
        self.gate = Gate(endpoint.concurrency)
        self._native = bool(tools)
        self._fixed = self._fixed_fields(tools)
        self._http: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

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
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    # ------------------------------------------------------------------------------------------------------------- one answer

    async def _ask(self, messages: Sequence[Message], seed: int) -> Answer | None:
        """One answer, however many calls it takes; ``None`` if the budget is spent."""
        body = msgspec.json.encode({**self._fixed, "messages": wire_messages(messages, native=self._native), "seed": seed})
        problem: _Again | None = None
        for attempt in range(self.endpoint.attempts):
            if problem is not None:
                self.ledger.retries += 1
                await asyncio.sleep(self._pause(attempt, problem))
            await self.gate.enter()
            try:
                if self.ledger.exhausts(self.budget):
                    return None
                answer = await self._call(body)
            except _Again as again:
                problem = again
                self.ledger.lost += again.lost
                if again.refused:
                    self.gate.refused(again.wait or 0.0)
                continue
            finally:
                self.gate.leave()
            self.gate.answered()
            self.ledger.add(self._usage(answer))
            return answer
        raise InfrastructureError(
            f"{self.endpoint.base_url}: {self.endpoint.attempts} calls failed, the last one with: {problem}"
        )

    def _pause(self, attempt: int, problem: _Again) -> float:
        grown: float = min(0.25 * 2**attempt, self.endpoint.longest_wait)
        return max(problem.wait or 0.0, random.uniform(0.5, 1.0) * grown)

    async def _call(self, body: bytes) -> Answer:
        """One HTTP call."""
        try:
            async with self._session().post(f"{self.endpoint.base_url.rstrip('/')}/chat/completions", data=body) as answer:
                data = await answer.read()
                if answer.status == 200:
                    return read_answer(data)
                self._refuse(answer, data)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise _Again(repr(error), lost=not isinstance(error, aiohttp.ClientConnectorError)) from error
        raise AssertionError("_refuse always raises")

    def _refuse(self, answer: aiohttp.ClientResponse, data: bytes) -> None:
        told = f"{answer.status} {data[:300].decode('utf-8', 'replace')}"
        if answer.status in (408, 409, 425, 429) or answer.status >= 500:
            raise _Again(told, wait=_retry_after(answer), refused=answer.status == 429)
        if answer.status in (400, 413, 422) and is_overflow(data):
            raise _Overflow
        raise PolicyError(f"{self.endpoint.base_url} refused the call: {told}")

    def _usage(self, answer: Answer) -> Usage:
        prices = self.endpoint
        dollars = (answer.prompt_tokens * prices.prompt_price + answer.completion_tokens * prices.completion_price) / 1e6
        return Usage(answer.prompt_tokens, answer.completion_tokens, dollars)

    def _fixed_fields(self, tools: Sequence[Tool]) -> dict[str, Any]:
        """What all calls have in common."""
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

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._http is None or self._http.closed or self._loop is not loop:
            self._loop = loop
            headers = {"Content-Type": "application/json"}
            if key := os.environ.get(self.endpoint.key_variable):
                headers["Authorization"] = f"Bearer {key}"
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=self.endpoint.timeout, sock_connect=15.0),
                headers=headers,
            )
        return self._http


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return None
