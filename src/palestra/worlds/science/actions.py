"""The text of an action, and the texts that the environment adds to those of the simulator.

``palestra.authoring.action_line`` finds the line of a message that is the action. The simulator gets plain short text only.
"""

import re

from palestra.authoring.action_line import action_line

__all__ = ["NOT_AN_ACTION", "action_of", "first_observation"]

LONGEST = 200
"""Characters of the longest action. The longest in a gold path has fewer than 100."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,.'()/-]*")

NOT_AN_ACTION = (
    'Your message contains no action. Write one action in plain words, on one line after "Action:". For example:\n'
    "Action: look around"
)

_ACTIONS = """\
look around | look at X | look in X | read X: see the room, a thing, what a thing contains, a text
go to PLACE | open X | close X: walk through an open door, open or close a door or container
pick up X | put down X | move X to Y | pour X in Y | dunk X in Y | mix X: handle things; mix acts on what is in a container
activate X | deactivate X | use X on Y | connect X to Y | disconnect X: work with devices and circuits
eat X | flush X | wait | wait1: wait lets 10 steps pass, wait1 one
focus on X: declare that the task is about X. Focusing on a wrong thing can end the episode without points
inventory | task | reset task: see what you carry, read the task again, start its progress again
"""

_TELEPORT = "teleport to PLACE: be there at once\n"


def action_of(message: str) -> str | None:
    """Return the action in ``message``, or ``None`` if there is none that the simulator could read."""
    text = action_line(message)
    return text if len(text) <= LONGEST and _PLAIN.fullmatch(text) else None


def first_observation(description: str, room: str, *, teleport: bool) -> str:
    """Return the task, the rules and the first look around."""
    actions = _ACTIONS + (_TELEPORT if teleport else "")
    return (
        f"{description.strip()}\n\n"
        'You do this in a simulated house with a few rooms. Write one action per message, on one line after "Action:". '
        "X and Y are names of things that you see, or that you carry. If a name is ambiguous, you get a numbered list, "
        "and your next action is a number.\n\n"
        f"{actions}\n{room.strip()}"
    )
