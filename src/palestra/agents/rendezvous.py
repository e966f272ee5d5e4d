"""Where the actions of a running program meet its episode, one at a time.

An agent takes a step by calling a function or by an MCP call, perhaps several in parallel. The episode waits for one action,
plays it, and returns with the observation. A caller that stops waiting does not undo its action: the next action waits until
the observation of this one is there, so the observations stay with their actions.
"""

import asyncio
from collections.abc import Callable

__all__ = ["Rendezvous"]


class Rendezvous:
    """Actions go in by ``take``; the episode gets each from ``expect`` and answers with ``pass_on``."""

    def __init__(self, seen: Callable[[str, bool], None] = lambda observation, done: None) -> None:
        self.done = False
        """Whether the episode has ended."""
        self._seen = seen
        """Is called with every observation, and whether it is the last."""
        self._turn = asyncio.Lock()
        """Held from an action to its observation."""
        self._last = ""
        self._action: asyncio.Future[str] | None = None
        self._answer: asyncio.Future[str] | None = None

    @property
    def waiting(self) -> bool:
        """Whether an action waits for its observation."""
        return self._answer is not None

    def expect(self) -> "asyncio.Future[str]":
        """Return the future of the next action."""
        self._action = asyncio.get_running_loop().create_future()
        return self._action

    async def take(self, action: str) -> str:
        """Take ``action`` in the environment and return the observation. After the end, return the last observation."""
        await self._turn.acquire()
        if self.done:
            self._turn.release()
            return self._last
        assert self._action is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._action.set_result(action)
        return await asyncio.shield(self._answer)

    def pass_on(self, observation: str, *, done: bool = False) -> None:
        """Answer the action that waits, if one does. With ``done``, no further action reaches the episode."""
        self.done = self.done or done
        if not self.waiting and not done:
            return
        self._last = observation
        self._seen(observation, self.done)
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.set_result(observation)
            self._turn.release()
