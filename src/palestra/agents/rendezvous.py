"""Where the actions of a running program meet its episode, one at a time.

An agent takes a step by calling a function or by an MCP call, perhaps several in parallel. The episode waits for one action,
plays it, and returns with the observation. A caller that stops waiting does not undo its action: the next action waits until
the observation of this one is there, so the observations stay with their actions. An action that still waits when the episode
ends is not played, and its caller learns that.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["ActionAnswer", "Rendezvous"]


class ActionAnswer(NamedTuple):
    """The answer to an action."""

    observation: str
    """What the action led to; the last observation of the episode if the action was not played."""
    played: bool
    """Whether the episode played the action. It does not if it has ended."""


class Rendezvous:
    """Actions go in by ``take``; the episode gets each from ``expect`` and answers with ``pass_on``."""

    def __init__(self, seen: Callable[[str, bool], None] = lambda observation, ended: None) -> None:
        self.ended = False
        """Whether the episode has ended."""
        self._seen = seen
        """Is called with every observation, and whether it is the last."""
        self._turn = asyncio.Lock()
        """Held from an action to its observation."""
        self._last = ""
        self._action: asyncio.Future[str] | None = None
        self._answer: asyncio.Future[ActionAnswer] | None = None
        self._playing = False
        """Whether the episode plays the action that waits for its observation."""

    def expect(self) -> "asyncio.Future[str]":
        """Return the future of the next action."""
        self._action = asyncio.get_running_loop().create_future()
        return self._action

    def begin_step(self) -> None:
        """Note that the episode plays the action that it has got."""
        self._playing = True

    async def take(self, action: str) -> ActionAnswer:
        """Take ``action`` in the environment and return the observation. After the end, return the last observation."""
        await self._turn.acquire()
        if self.ended:
            self._turn.release()
            return ActionAnswer(self._last, played=False)
        assert self._action is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._action.set_result(action)
        return await asyncio.shield(self._answer)

    def pass_on(self, observation: str, *, ended: bool = False) -> None:
        """Answer the action that waits, if one does. With ``ended``, no further action reaches the episode."""
        self.ended = self.ended or ended
        if self._answer is None and not ended:
            return
        self._last = observation
        self._seen(observation, self.ended)
        answer, self._answer = self._answer, None
        played, self._playing = self._playing, False
        if answer is not None:
            answer.set_result(ActionAnswer(observation, played))
            self._turn.release()
