"""An OpenEnv server as a Palestra environment.

``openenv:http://HOST:PORT?action_field=message`` plays on a running OpenEnv server. OpenEnv's actions are JSON objects: the
text becomes one field of it, or the whole object if no field is named. Observations are JSON objects too: the agent sees one
field of it, or all of it as JSON.

OpenEnv's protocol has no message numbers, so a late answer could be taken for the answer to the next call. A connection is
therefore never used again after a call that timed out or was cancelled.
"""

import asyncio
import contextlib
import math
from typing import Any, Literal

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from palestra.adapters.meter import MOST_BYTES, MOST_STEPS, LoopMeter
from palestra.core import AsyncEnv, Step
from palestra.errors import EnvError, InfrastructureError, SchemaError, UsageError
from palestra.foundation.encoding import clean_text, decode_json, encode_json
from palestra.foundation.seeding import fresh_seed
from palestra.trajectory import Content, Task

__all__ = ["OpenEnv"]

LARGEST_SEED = 2**31 - 1
"""Seeds are taken modulo this number, because OpenEnv environments pass them to generators that take 32 bits."""


class _Outcome(msgspec.Struct, frozen=True):
    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False


class _OpenEnvAnswer(msgspec.Struct, frozen=True):
    type: Literal["observation", "state", "error"]
    data: dict[str, Any] = {}


class OpenEnv(AsyncEnv):
    """One session on an OpenEnv server."""

    reusable = True

    def __init__(
        self,
        path: str,
        *,
        action_field: str = "",
        observation_field: str = "",
        deadline: float = 60.0,
        max_message: int = 2**24,
        max_steps: int = MOST_STEPS,
        max_episode_bytes: int = MOST_BYTES,
    ) -> None:
        scheme, mark, address = path.partition("://")
        if not mark or scheme not in ("http", "https", "ws", "wss"):
            raise UsageError(f'"{path}" is not the address of a server: write openenv:http://HOST:PORT')
        self._name = f"openenv:{path}"
        self._url = f"{'wss' if scheme in ('https', 'wss') else 'ws'}://{address.rstrip('/')}/ws"
        self._action_field = action_field
        self._observation_field = observation_field
        self._deadline = deadline
        self._max_message = max_message
        self._meter = LoopMeter(self._url, max_steps, max_episode_bytes)
        self._socket: ClientConnection | None = None

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self.task = task or Task(self._name, fresh_seed() if seed is None else seed)
        self._meter.begin()
        outcome = await self._ask({"type": "reset", "data": {"seed": self.task.seed & LARGEST_SEED, **self.task.params}})
        return self._shown(outcome), {}

    async def step(self, action: str) -> Step:
        outcome = await self._ask({"type": "step", "data": self._action(action)})
        reward = 0.0 if outcome.reward is None else outcome.reward
        if not math.isfinite(reward):
            raise InfrastructureError(f"{self._url} sent a reward of {reward}")
        if not outcome.done:
            self._meter.stepped()
        return Step(self._shown(outcome), reward, outcome.done, False, {"observation": outcome.observation})

    async def close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            with contextlib.suppress(WebSocketException, OSError):
                await socket.send('{"type":"close"}')
            await _hang_up(socket)

    async def _ask(self, message: dict[str, Any]) -> _Outcome:
        answered = False
        try:
            async with asyncio.timeout(self._deadline):
                if self._socket is None:
                    self._socket = await connect(self._url, max_size=self._max_message, compression=None, max_queue=4)
                await self._socket.send(encode_json(message).decode())
                received = await self._socket.recv()
                answer = decode_json(received, _OpenEnvAnswer)
                answered = True
        except (OSError, ConnectionClosed, WebSocketException, SchemaError) as error:
            raise InfrastructureError(f"{self._url}: {type(error).__name__}: {error}") from error
        finally:
            if not answered:
                await self._drop()
        self._meter.received(len(received))
        if answer.type == "error":
            failed = EnvError(clean_text(str(answer.data.get("message", "no message"))))
            failed.kind = clean_text(str(answer.data.get("code", "")))
            raise failed
        try:
            return msgspec.convert(answer.data, _Outcome)
        except msgspec.ValidationError as error:
            await self._drop()
            raise InfrastructureError(f"{self._url} sent no observation: {error}") from error

    def _action(self, action: str) -> dict[str, Any]:
        if self._action_field:
            return {self._action_field: clean_text(action)}
        try:
            return decode_json(clean_text(action), dict)
        except SchemaError:
            # The model wrote no JSON object: the server rejects this one and answers with an error of the environment.
            return {"text": clean_text(action)}

    def _shown(self, outcome: _Outcome) -> str:
        if not self._observation_field:
            return encode_json(outcome.observation).decode()
        if self._observation_field not in outcome.observation:
            there = ", ".join(sorted(outcome.observation))
            raise EnvError(f'the observation has no field "{self._observation_field}"; it has {there}')
        shown = outcome.observation[self._observation_field]
        return shown if isinstance(shown, str) else encode_json(shown).decode()

    async def _drop(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await _hang_up(socket)


async def _hang_up(socket: ClientConnection) -> None:
    socket.transport.abort()  # a late answer is discarded with the connection
    with contextlib.suppress(WebSocketException, OSError):
        await socket.wait_closed()
