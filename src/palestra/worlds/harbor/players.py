"""The player that does nothing: ``palestra eval palestra.worlds.harbor.players:nop ID``. Its score should be 0 on every task.

The other reference player is ``oracle``, which runs the task's own solution.
"""

from palestra.trajectory import Content

__all__ = ["nop"]


def nop(observation: Content) -> str:
    """Return the action that ends the episode, whatever the observation is."""
    return "```bash\nsubmit\n```"
