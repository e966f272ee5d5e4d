"""Nothing that is printed steers the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.foundation.terminal import terminal_safe

CONTROLS = (
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x9b31m",
    "a\rb",
    "\b\b",
    "\u202egnp.exe",
    "\u2066x",
    "\x7f",
    "\ud800",
    "\v",
    "\f",
    "\x85",
)


@pytest.mark.parametrize("text", CONTROLS)
def test_a_control_is_replaced(text: str) -> None:
    assert not set(terminal_safe(text)) & set("\x1b\x9b\x07\r\b\x7f\v\f\x85\u202e\u2066\ud800")
    assert "\ufffd" in terminal_safe(text)


@pytest.mark.parametrize("text", ["plain", "two\nlines\tand a tab", "Ünï→日本 🎲", ""])
def test_text_is_left_alone(text: str) -> None:
    assert terminal_safe(text) == text


def test_a_windows_line_end_is_a_line_end() -> None:
    assert terminal_safe("a\r\nb") == "a\nb"


@given(st.text(st.characters(codec=None)))
def test_the_result_can_be_printed_and_is_stable(text: str) -> None:
    safe = terminal_safe(text)
    safe.encode()
    assert terminal_safe(safe) == safe
    assert not any(ord(character) < 32 and character not in "\n\t" for character in safe)
