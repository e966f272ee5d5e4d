"""How much an environment on another machine may send in one episode.

A server that never ends an episode, or sends megabytes, would fill the memory of its client. Over the limit, the episode fails
with the environment at fault and gets no score. The message names the keyword that raises the limit.
"""

from palestra.errors import EnvError

__all__ = ["MOST_BYTES", "MOST_STEPS", "LoopMeter"]

MOST_STEPS = 10_000
MOST_BYTES = 64 * 2**20


class LoopMeter:
    """Counts the steps and bytes of one episode of the environment ``name``."""

    def __init__(self, name: str, most_steps: int, most_bytes: int) -> None:
        self._name = name
        self._most_steps = most_steps
        self._most_bytes = most_bytes
        self._steps = self._bytes = 0

    def begin(self) -> None:
        """Start to count a new episode."""
        self._steps = self._bytes = 0

    def received(self, size: int) -> None:
        """Count an answer of ``size`` bytes. Raises ``EnvError`` over the limit."""
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise EnvError(
                f"{self._name} sent more than {self._most_bytes} bytes in one episode; make(…, max_episode_bytes=…) allows more"
            )

    def stepped(self) -> None:
        """Count a step that did not end the episode. Raises ``EnvError`` over the limit."""
        self._steps += 1
        if self._steps >= self._most_steps:
            raise EnvError(f"{self._name} did not end the episode in {self._steps} steps; make(…, max_steps=…) allows more")
