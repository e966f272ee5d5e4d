"""Random, mostly invalid conversations with a server: it must neither fail nor lose a session."""

import asyncio
import re
import shutil
from typing import Any

import msgspec
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from palestra.foundation.seeding import derive
from palestra.serve import EnvServer, ServerLimits, wire
from palestra.serve.tokens import new_token
from palestra.trajectory import Task
from tests.serve.tally import REFERENCE, reward_of

_LIMITS = ServerLimits(max_message=64 * 1024)
_LAST = 2**52
"""A ``seq`` above all that the nonsense uses."""


def nonsense(rng: np.random.Generator) -> bytes | str:
    """One frame that may be anything, from noise to a call that is almost right."""
    kind = rng.integers(7)
    if kind == 0:
        return rng.bytes(int(rng.integers(200)))
    if kind == 1:
        return "text " * int(rng.integers(20))
    if kind == 2:
        return msgspec.msgpack.encode(_value(rng, 3))
    frame = _almost(rng)
    if kind == 3 and isinstance(frame, dict):
        frame[_pick(rng, list(frame))] = _value(rng, 2)
    data = msgspec.msgpack.encode(frame)
    if kind == 4:
        return data[: int(rng.integers(len(data) + 1))]
    if kind == 5:
        place = int(rng.integers(len(data)))
        return data[:place] + rng.bytes(1) + data[place + 1 :]
    return data


def _almost(rng: np.random.Generator) -> dict[str, Any]:
    verb = _pick(
        rng,
        [
            {"type": "reset", "task": {"env": REFERENCE, "seed": int(rng.integers(9))}},
            {"type": "reset", "task": {"env": _pick(rng, [REFERENCE, "x"]), "params": {"deep": _deep(int(rng.integers(120)))}}},
            {"type": "step", "action": _pick(rng, ["a", "end", "", "é" * 50])},
            {"type": "ask", "verb": _pick(rng, ["oracle", "sample_random_action", "__class__"])},
            {"type": "seed_actions", "seed": int(rng.integers(2**62))},
        ],
    )
    call = {
        "type": "call",
        "seq": int(rng.integers(12)),
        "request": 1,
        "deadline": _pick(rng, [1.0, 60.0, 1e9, 0.0]),
        "verb": verb,
    }
    hello = {"type": "hello", "versions": [int(rng.integers(3))], "env": REFERENCE, "session": _pick(rng, ["", "0" * 32])}
    found: dict[str, Any] = _pick(rng, [call, call, call, hello, {"type": "beat", "request": 3}])
    return found


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _value(rng: np.random.Generator, depth: int) -> Any:
    plain = [None, True, -1, 2**63, float("nan"), "text", b"bytes", ""]
    if depth == 0 or rng.random() < 0.5:
        return _pick(rng, plain)
    items = [_value(rng, depth - 1) for _ in range(int(rng.integers(4)))]
    return items if rng.random() < 0.5 else {str(index): item for index, item in enumerate(items)}


def _pick(rng: np.random.Generator, choices: list[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


async def converse(url: str, token: str, rng: np.random.Generator) -> bool:
    """Open a session, talk nonsense, then play two moves: whether they were answered rightly."""
    headers = {"Authorization": f"Bearer {token}"}
    address = url.replace("http://", "ws://") + wire.PATH
    async with connect(address, additional_headers=headers, compression=None, ping_interval=None, proxy=None) as socket:
        for _ in range(int(rng.integers(3))):
            await socket.send(nonsense(rng))
        await socket.send(wire.encode_frame(wire.Hello(versions=(1,), env=REFERENCE)))
        for _ in range(int(rng.integers(1, 15))):
            await socket.send(nonsense(rng))
        await socket.send(wire.encode_frame(wire.CallFrame(_LAST, 7, 10.0, wire.ResetFrame(Task(REFERENCE, 5)))))
        await socket.send(wire.encode_frame(wire.CallFrame(_LAST + 1, 8, 10.0, wire.StepFrame("move"))))
        async with asyncio.timeout(120):
            return await _answered(socket)


async def _answered(socket: ClientConnection) -> bool:
    """Whether the last call was answered rightly, whichever Hello among the nonsense opened the session."""
    async for message in socket:
        assert isinstance(message, bytes)
        frame = wire.decode_frame(message, wire.FromServer)
        if isinstance(frame, wire.ReplyFrame | wire.Fault) and frame.seq == _LAST + 1:
            return isinstance(frame, wire.ReplyFrame) and frame.result == wire.Stepped(
                "5:1:move", reward_of(5, 1, "move"), False, False, {"turn": 1}
            )
    return False


async def run(count: int, seed: int = 0, at_once: int = 20) -> tuple[int, int]:
    """``count`` conversations; server errors, and sessions that were lost."""
    token = new_token()
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    async with EnvServer(REFERENCE, token, limits=_LIMITS) as server:
        lost = 0
        for first in range(0, count, at_once):
            numbers = range(first, min(first + at_once, count))
            told = await asyncio.gather(*(converse(server.url, token, derive(seed, "talk", number)) for number in numbers))
            lost += told.count(False)
        return server.sessions.metrics.faults[wire.Code.INTERNAL] + len(failures), lost


async def schemathesis(examples: int, seed: int = 1) -> tuple[int, int] | None:
    """Schemathesis against the HTTP side; the calls it made and the failures it found. ``None`` if it is not installed."""
    program = shutil.which("st") or shutil.which("schemathesis")
    if program is None:
        return None
    token = new_token()
    async with EnvServer(REFERENCE, token, limits=ServerLimits(max_sessions=2**30, ttl=5.0)) as server:
        process = await asyncio.create_subprocess_exec(
            *(program, "run", f"{server.url}/openapi.json", "--header", f"Authorization: Bearer {token}"),
            *("--max-examples", str(examples), "--seed", str(seed), "--phases", "coverage,fuzzing,stateful"),
            *("--checks", "not_a_server_error,status_code_conformance,response_schema_conformance,use_after_free"),
            *("--generation-database", "none", "--no-color"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        if not process.returncode:
            failures = 0
        else:
            print(output[-3000:])
            failures = max(1, server.sessions.metrics.faults[wire.Code.INTERNAL])
    found = re.findall(r"(\d[\d,]*) generated", output)
    return int(found[-1].replace(",", "")) if found else 0, failures


__all__ = ["converse", "nonsense", "run", "schemathesis"]
