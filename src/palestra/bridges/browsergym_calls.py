"""Palestra's actions in a browser as the calls of BrowserGym."""

import re
from collections.abc import Callable, Mapping

from palestra.worlds.web.actions import Action

__all__ = ["call_of"]

_PIXELS = 400
_ADDRESS = re.compile(r"https?://\S+")


def call_of(order: Action) -> str:
    """Return BrowserGym's calls for an action, one per line; an empty text for an address that must not be opened."""
    if order.name == "goto" and not _ADDRESS.fullmatch(order.arguments["address"]):
        return ""
    return _CALLS[order.name](order.arguments)


def _typed(given: Mapping[str, str]) -> str:
    enter = "\nkeyboard_press('Enter')" if given.get("enter") == "1" else ""
    return f"fill({given['element']!r}, {given['text']!r}){enter}"


_CALLS: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "click": lambda given: f"click({given['element']!r})",
    "double_click": lambda given: f"dblclick({given['element']!r})",
    "type": _typed,
    "select": lambda given: f"select_option({given['element']!r}, {given['option']!r})",
    "press": lambda given: f"keyboard_press({given['keys']!r})",
    "hover": lambda given: f"hover({given['element']!r})",
    "drag": lambda given: f"drag_and_drop({given['element']!r}, {given['target']!r})",
    "scroll": lambda given: f"scroll(0, {_PIXELS if given['direction'] == 'down' else -_PIXELS})",
    "click_at": lambda given: f"mouse_click({float(given['x'])}, {float(given['y'])})",
    "drag_at": lambda given: (
        f"mouse_drag_and_drop({', '.join(str(float(given[name])) for name in ('x', 'y', 'to_x', 'to_y'))})"
    ),
    "wait": lambda given: "noop(500)",
    "goto": lambda given: f"goto({given['address']!r})",
    "go_back": lambda given: "go_back()",
    "go_forward": lambda given: "go_forward()",
    "new_tab": lambda given: "new_tab()",
    "tab_focus": lambda given: f"tab_focus({int(given['tab'])})",
    "close_tab": lambda given: "tab_close()",
    "stop": lambda given: f"send_msg_to_user({given.get('answer', '')!r})",
}
