"""Palestra's environments as a resources server of NeMo Gym, which NeMo-RL trains with. Tried with nemo-gym 0.4.0, Python 3.12.

NeMo Gym's ``gymnasium_agent`` runs the loop over text: it posts to ``/reset`` and ``/step``, and adds up the rewards. The
file that NeMo Gym starts needs two lines::

    from palestra.bridges.nemo_gym import PalestraServer
    PalestraServer.run_webserver()

A row of the data set holds the task (``task_rows``). A reply that the token limit has cut is not a move: it truncates the
episode with the reward 0. If the environment fails, the request fails and with it the episode, which has no reward. The
agent never says that it has reached its own ``max_steps``: a session without a request for ``lease_seconds`` is closed.

The client names the environment, and an id such as ``module:Class`` or ``data:FILE`` runs code or reads files on the server.
So a server plays registered ids only. A subclass may list patterns of ids, which replace this rule::

    class Server(PalestraServer):
        envs: list[str] = ["game:*", "my_package.envs:*"]

``PalestraServer`` is made when it is first used, since it inherits from NeMo Gym's ``GymnasiumServer``.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from palestra.bridges import rows
from palestra.bridges.leases import LentEnv, only_text
from palestra.bridges.versions import framework
from palestra.errors import UsageError
from palestra.foundation.encoding import tame
from palestra.registry import registered
from palestra.trajectory import Task, text_of

__all__ = ["PalestraServer", "task_rows"]  # noqa: F822 - PalestraServer is made by __getattr__

LEASE_SECONDS = 600.0


def task_rows(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return one row per task for NeMo Gym's data set. The first observation is the first message."""
    return rows.task_rows(tasks, responses_create_params={"input": []})


async def _reset(self: Any, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str, dict[str, Any]]:
    """Begin the episode of a row."""
    task = rows.task_of(metadata)
    allowed = any(fnmatchcase(task.env, pattern) for pattern in self.envs) if self.envs else registered(task.env)
    if not allowed:
        offered = ", ".join(self.envs) or "registered ids only"
        raise UsageError(
            f'clients may not play "{task.env}": this server allows {offered} (PalestraServer.envs lists patterns)'
        )
    await self.close_session(session_id)
    _forget_closed(self.session_state)
    lent = self.session_state[session_id] = LentEnv(task.env, idle=self.lease_seconds)
    try:
        observation, info = await lent.reset_async(task=task)
        return only_text(observation, info), tame(info)
    except BaseException:
        await self.close_session(session_id)
        raise


async def _step(
    self: Any, action: Any, metadata: dict[str, Any], session_id: str | None = None
) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
    """Play a reply of the model. The server closes the session after the end."""
    from resources_servers.gymnasium import extract_text

    lent = self.session_state.get(session_id)
    if lent is None:
        raise MissingSession(f"there is no session {session_id!r}: it was never reset, has ended, or its lease has expired")
    if action.incomplete_details is not None:
        return None, 0.0, False, True, {"stop": "length_cut"}
    try:
        step = await lent.step_async(extract_text(action))
    except BaseException:
        await self.close_session(session_id)
        raise
    return text_of(step.observation), step.reward, step.terminated, step.truncated, tame(step.info)


async def _close_session(self: Any, session_id: str | None) -> None:
    lent = self.session_state.pop(session_id, None)
    if lent is not None:
        await lent.close_async()


def _forget_closed(sessions: dict[Any, Any]) -> None:
    for name in [name for name, lent in sessions.items() if lent.closed]:
        del sessions[name]


class MissingSession(LookupError):
    """A step came for an episode that is not there."""


def __getattr__(name: str) -> Any:
    if name != "PalestraServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = framework("nemo_gym", "resources_servers.gymnasium", "GymnasiumServer", "extract_text").GymnasiumServer
    body = {
        "__module__": __name__,
        "__doc__": "One environment per session of NeMo Gym.",
        "__annotations__": {"lease_seconds": float, "envs": list[str]},
        "lease_seconds": LEASE_SECONDS,
        "envs": [],
        "reset": _reset,
        "step": _step,
        "close_session": _close_session,
    }
    return globals().setdefault(name, type(base)(name, (base,), body))
