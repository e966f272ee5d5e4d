"""A hostile server: it sends every message that must not affect a client, at every stage of a session."""

import asyncio
import contextlib
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from websockets.asyncio.server import ServerConnection, serve

from palestra.errors import PalestraError
from palestra.serve import RemoteEnv
from palestra.serve.client import GRACE
from palestra.serve.wire import CallFrame, FromClient, Hello, ReplyFrame, Shown, Welcome, decode_frame, encode_frame
from palestra.trajectory import Task

DEADLINE = 0.3
STAGES = ("hello", "reset", "step")
_pack = msgspec.msgpack.encode

Evil = Callable[[int, int], bytes | str | list[bytes]]
"""What to send, given the ``seq`` and ``request`` that wait for an answer."""


class _Bomb:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.canary,))


def _raw(data: bytes | str | list[bytes]) -> Evil:
    return lambda seq, request: data


def _reply(result: Any) -> Evil:
    return lambda seq, request: _pack({"type": "reply", "seq": seq, "request": request, "result": result})


def _stepped(**changes: Any) -> Evil:
    fair = {"type": "stepped", "observation": "", "reward": 0.0, "terminated": False, "truncated": False, "info": {}}
    return _reply({**fair, **changes})


def _fault(**changes: Any) -> Evil:
    return lambda seq, request: _pack(
        {"type": "fault", "code": "failed", "message": "x", "seq": seq, "request": request, **changes}
    )


def _welcome(**changes: Any) -> Evil:
    fair = {"type": "welcome", "version": 1, "session": "0" * 32, "env": "x", "seq": 0, "heartbeat": 10.0, "ttl": 60.0}
    return lambda seq, request: _pack({**fair, "max_message": 2**20, "max_deadline": 60.0, **changes})


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def messages(canary: Path) -> list[Evil]:
    """All of them."""
    bombs = [pickle.dumps(_Bomb(canary), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    code = f"__import__('pathlib').Path({str(canary)!r}).touch()"
    noise: list[bytes | str | list[bytes]] = [b"", code, '{"type": "beat"}', b"\xc1", b"\xdf\xff\xff\xff\xff"]
    noise += [b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc7\x04\x01abcd", _pack({"type": "exec", "code": code})]
    noise += [_pack([1, 2, 3]), [_pack({"type": "beat"})] * 2000]
    infos: list[Any] = [{"x": _nested(100)}, [], {"$py": code, "__reduce__": ["os.system", code]}]
    return [
        *(_raw(bomb) for bomb in bombs),
        *(_stepped(info={"x": bomb}) for bomb in bombs),
        *(_raw(part * 200_000) for part in (b"\x91", b"\x81\xa1a")),
        *(_raw(data) for data in noise),
        lambda seq, request: _pack({"type": "reply", "seq": seq + 1, "request": request, "result": {"type": "done"}}),
        lambda seq, request: _pack({"type": "reply", "seq": seq, "request": request + 9, "result": {"type": "done"}}),
        lambda seq, request: _pack({"type": "reply", "seq": -1, "request": -1, "result": {"type": "done"}}),
        *map(_reply, (None, {"type": "done"}, {"type": "said", "action": 7}, {"type": "stepped"})),
        *(_stepped(reward=reward) for reward in (float("nan"), float("inf"), "1")),
        *(_stepped(observation=shown) for shown in (b"bytes", [{"type": "file", "path": "/etc/passwd"}])),
        *(_stepped(info=info) for info in infos),
        *(_stepped(terminated="no"), _stepped(extra=code), _fault(boundary="nobody"), _fault(code="no_session")),
        *(_fault(code="run", message=code), _fault(kind="os.system", message=code), _fault(kind="KeyboardInterrupt")),
        _fault(kind="SystemExit", boundary="infrastructure"),
        *(_fault(code="busy", retry_after=seconds) for seconds in (float("nan"), 1e300, -1.0)),
        *(_welcome(heartbeat=1e-9), _welcome(heartbeat=float("nan")), _welcome(version=2), _welcome(max_message=0)),
        *(_welcome(session="../../../etc/passwd"), _welcome(max_deadline=1e-9)),
    ]


class _Host:
    """Behaves until the stage at which it attacks."""

    def __init__(self, stage: str, evil: Evil) -> None:
        self.stage, self.evil = stage, evil

    async def handle(self, socket: ServerConnection) -> None:
        async for message in socket:
            assert isinstance(message, bytes)
            frame = decode_frame(message, FromClient)
            if isinstance(frame, Hello):
                good = encode_frame(Welcome(1, "0" * 32, frame.env, 0, 10.0, 60.0, 2**20, 60.0))
                await self._send(socket, "hello", good, 0, 0)
            elif isinstance(frame, CallFrame):
                stage = "reset" if frame.seq == 1 else "step"
                good = encode_frame(ReplyFrame(frame.seq, frame.request, Shown("", {})))
                await self._send(socket, stage, good, frame.seq, frame.request)

    async def _send(self, socket: ServerConnection, stage: str, good: bytes, seq: int, request: int) -> None:
        data = self.evil(seq, request) if stage == self.stage else good
        for part in data if isinstance(data, list) else [data]:
            await socket.send(part)


async def _meet(stage: str, evil: Evil, canary: Path) -> str:
    """Play against the attack; what it did to us, empty if nothing."""
    began = perf_counter()
    async with serve(_Host(stage, evil).handle, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        env = RemoteEnv(f"http://127.0.0.1:{port}#game:X", token="x" * 32, deadline=DEADLINE)
        try:
            await env.reset(task=Task("game:X", 1))
            await env.step("action")
        except PalestraError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it raises is reported
            return f"{type(error).__name__} escaped: {error}"
        finally:
            with contextlib.suppress(PalestraError):
                await env.close()
    limit = 2 * (DEADLINE + GRACE) + 20
    if perf_counter() - began > limit:
        return f"took {perf_counter() - began:.1f} s"
    return "the canary sings" if canary.exists() else ""


async def attack() -> tuple[int, int]:
    """Send every message at every stage; how many were sent, and how many had an effect."""
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary"
        attacks = [(stage, evil) for stage in STAGES for evil in messages(canary)]
        found = await asyncio.gather(*(_meet(stage, evil, canary) for stage, evil in attacks))
    effects = [effect for effect in found if effect]
    for effect in effects:
        print("effect:", effect)
    return len(attacks), len(effects)
