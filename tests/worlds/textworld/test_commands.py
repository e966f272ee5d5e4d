"""Replies become commands of the game, and nothing else reaches the interpreter. Needs no TextWorld."""

import pytest

from palestra.worlds.textworld.commands import first_text, grammar, observed, read_command

VERBS = ("look", "inventory", "go", "take", "prepare")


@pytest.mark.parametrize(
    ("reply", "command"),
    [
        ("take coin", "take coin"),
        ("I should go east.\n\n> Go  EAST \n", "go east"),
        ("take block of cheese from BBQ", "take block of cheese from bbq"),
        ("Action: take coin\nIt may be of use.", "take coin"),
        ("save", None),
        ("restart", None),
        ("tw-trace-actions", None),
        ("script", None),
        ("take coin. quit", None),
        ("take coin then save", None),
        ("take all from counter", None),
        ("take coin and key", None),
        ("open door", None),  # not a verb of this game
        ("xyzzy", None),
        ("", None),
        ("take " + "x" * 200, None),
        ("take c\u00f6in", None),
        ("take coin\x00", None),
    ],
)
def test_only_commands_of_the_game_are_read(reply: str, command: str | None) -> None:
    assert read_command(reply, VERBS) == command


def test_the_grammar_has_the_verbs_of_the_game_only() -> None:
    assert grammar(("take", "look")) == "look\ntake THING\ntake THING from PLACE"


def test_the_prompt_the_status_line_and_the_banner_are_cut_off() -> None:
    assert observed("\nYou take it.\n\n\n\nDone.\n\n>       -= Kitchen =-0/1") == "You take it.\n\nDone."
    assert (
        first_text("\n |  $$\\ \n  \\$$  $$ \n\nFind the coin.\n\n-= Attic =-\n\n>    -= Attic =-0/1")
        == "Find the coin.\n\n-= Attic =-"
    )
