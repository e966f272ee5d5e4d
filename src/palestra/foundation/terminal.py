"""Text that is safe to print to a terminal.

Observations, errors of servers and text from run folders can contain escape sequences, which move the cursor, rename the window
or type into the shell. Every command prints text that it did not write itself through ``terminal_safe``.
"""

import re

__all__ = ["terminal_safe"]

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def terminal_safe(text: str) -> str:
    """Return ``text`` with U+FFFD in place of every character that controls a terminal or cannot be printed.

    These are control characters except tab and line break, marks that change the direction of text, and surrogates.
    """
    return _STEERING.sub("\ufffd", text.replace("\r\n", "\n"))
