"""An episode of ScienceWorld as HTML for people. It shows only what the agent has seen."""

from html import escape
from typing import NamedTuple

__all__ = ["Seen", "drawn"]

_ROOM = "This room is called"
"""How the simulator begins the description of a room."""

_GOOD, _REST, _QUIET = "#1a7f4e", "#d5dbe3", "#8390a2"


class Seen(NamedTuple):
    """What the agent has seen so far, as far as the picture shows it."""

    description: str
    room: str
    """The last description of a room."""
    action: str = ""
    answer: str = ""
    """What the simulator answered to the last action."""
    actions: int = 0
    score: int = 0

    def after(self, action: str, answer: str, score: int) -> "Seen":
        """Return what was seen after one more action."""
        room = answer if answer.startswith(_ROOM) else self.room
        return Seen(self.description, room, action, answer, self.actions + 1, score)


def drawn(seen: Seen) -> str:
    """Return the task, the score, the last action with its answer, and the room that the agent saw last."""
    done = max(0, min(100, seen.score))
    bar = "".join(
        f'<span style="display:inline-block;height:10px;width:{2 * width}px;background:{color}"></span>'
        for width, color in ((done, _GOOD), (100 - done, _REST))
    )
    count = f'<span style="color:{_QUIET}">after {seen.actions} actions</span>'
    last = f"<div>&gt; <b>{escape(seen.action)}</b></div>" if seen.action else ""
    texts = "".join(_text(text) for text in dict.fromkeys((seen.answer, seen.room)) if text)
    return (
        f'<div style="font:14px/20px ui-monospace,monospace"><div><b>{escape(seen.description.strip())}</b></div>'
        f"<div>{bar} {seen.score} of 100 {count}</div>{last}{texts}</div>"
    )


def _text(text: str) -> str:
    return f'<div style="white-space:pre-wrap;margin:6px 0">{escape(text.strip())}</div>'
