r"""Turn what a program wrote to a terminal into the text that a person would read, for a model.

Escape sequences are removed. A carriage return starts the line again, so of a progress bar only the last state is kept, and a
backspace removes a character. Other control characters and marks that change the direction of text are removed. The time is
linear in the length of the output. The raw bytes are kept elsewhere, for the viewer.
"""

import re

__all__ = ["clean", "shortened"]

_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # short ones
    r"|\x1b"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_REMOVED = re.compile("[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_TURNED = re.compile(r"\r+\n")


def clean(raw: bytes) -> str:
    """Return the text of terminal output."""
    text = _TURNED.sub("\n", _SEQUENCES.sub("", raw.decode("utf-8", errors="replace")))
    if "\b" in text or "\r" in text:
        text = "\n".join(map(_overwritten, text.split("\n")))
    return _REMOVED.sub("", text)


def _overwritten(line: str) -> str:
    """Return the line as it stands after carriage returns and backspaces."""
    if "\r" not in line and "\b" not in line:
        return line
    cells: list[str] = []
    column = 0
    for mark in line:
        if mark == "\r":
            column = 0
        elif mark == "\b":
            column = max(0, column - 1)
        elif column < len(cells):
            cells[column] = mark
            column += 1
        else:
            cells.append(mark)
            column += 1
    return "".join(cells)


def shortened(text: str, most: int) -> str:
    """Return ``text`` with at most about ``most`` characters: its beginning and its end."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[len(text) - most // 2 :]
    return f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"
