"""What a player that ignores the task scores in each task of MiniWoB++, measured by ``benchmarks/miniwob_floors.py``."""

from typing import NamedTuple

__all__ = ["FLOORS", "Floor", "floor_of"]


class Floor(NamedTuple):
    """The mean reward of the better of two players: one clicks at random, the other one repeats the same click."""

    with_penalty: float
    without_penalty: float
    """With ``penalty=False``, where a wrong end has the reward 0 instead of -1."""


FLOORS = {
    "ascending-numbers": Floor(0.00, 0.07),
    "bisect-angle": Floor(0.00, 0.13),
    "button-delay": Floor(0.00, 0.09),
    "buy-ticket": Floor(0.00, 0.15),
    "choose-list": Floor(0.00, 0.25),
    "circle-center": Floor(0.00, 0.19),
    "click-button": Floor(0.15, 0.55),
    "click-button-sequence": Floor(0.00, 0.40),
    "click-checkboxes": Floor(0.10, 0.19),
    "click-checkboxes-large": Floor(0.00, 0.10),
    "click-checkboxes-soft": Floor(0.00, 0.16),
    "click-checkboxes-transfer": Floor(0.10, 0.20),
    "click-collapsible": Floor(0.00, 0.30),
    "click-collapsible-2": Floor(0.00, 0.05),
    "click-collapsible-2-nodelay": Floor(0.00, 0.05),
    "click-collapsible-nodelay": Floor(0.00, 0.30),
    "click-color": Floor(0.00, 0.30),
    "click-dialog": Floor(1.00, 1.00),
    "click-dialog-2": Floor(0.00, 0.50),
    "click-link": Floor(0.00, 0.30),
    "click-menu": Floor(0.00, 0.10),
    "click-menu-2": Floor(0.00, 0.20),
    "click-option": Floor(0.00, 0.25),
    "click-pie": Floor(0.00, 0.10),
    "click-pie-nodelay": Floor(0.00, 0.10),
    "click-shape": Floor(0.00, 0.10),
    "click-tab": Floor(0.00, 0.35),
    "click-tab-2": Floor(0.00, 0.05),
    "click-tab-2-easy": Floor(0.00, 0.20),
    "click-tab-2-hard": Floor(0.00, 0.05),
    "click-tab-2-medium": Floor(0.00, 0.50),
    "click-test": Floor(1.00, 1.00),
    "click-test-2": Floor(1.00, 1.00),
    "click-test-transfer": Floor(1.00, 1.00),
    "click-widget": Floor(0.00, 0.25),
    "count-shape": Floor(0.00, 0.05),
    "count-sides": Floor(0.00, 0.10),
    "drag-box": Floor(0.00, 0.10),
    "drag-cube": Floor(0.00, 0.10),
    "drag-shapes": Floor(0.00, 0.35),
    "drag-sort-numbers": Floor(0.00, 0.05),
    "draw-line": Floor(0.00, 0.04),
    "email-inbox-delete": Floor(0.00, 0.25),
    "email-inbox-important": Floor(0.00, 0.10),
    "email-inbox-nl-turk": Floor(0.00, 0.05),
    "email-inbox-noscroll": Floor(0.00, 0.10),
    "find-greatest": Floor(0.22, 0.32),
    "find-midpoint": Floor(0.00, 0.05),
    "focus-text": Floor(1.00, 1.00),
    "focus-text-2": Floor(0.00, 0.30),
    "generate-number": Floor(0.00, 0.25),
    "grid-coordinate": Floor(0.00, 0.05),
    "hot-cold": Floor(0.00, 0.14),
    "identify-shape": Floor(0.00, 0.35),
    "navigate-tree": Floor(0.25, 0.40),
    "odd-or-even": Floor(0.00, 0.04),
    "phone-book": Floor(0.00, 0.07),
    "right-angle": Floor(0.00, 0.16),
    "scroll-text-2": Floor(0.30, 0.65),
    "sign-agreement": Floor(0.00, 0.35),
    "stock-market": Floor(0.00, 0.05),
    "tic-tac-toe": Floor(0.00, 0.05),
    "unicode-test": Floor(0.35, 0.65),
    "use-colorwheel": Floor(0.59, 0.59),
    "use-colorwheel-2": Floor(0.76, 0.76),
    "use-slider": Floor(0.00, 0.25),
}
"""Over 20 episodes, rounded up. A task that is not listed has the floor 0."""


def floor_of(name: str) -> Floor:
    """Return the floor of the task ``name``."""
    return FLOORS.get(name, Floor(0.0, 0.0))
