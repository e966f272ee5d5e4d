"""Reading commands: every form that is allowed, and that no text breaks the parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.worlds.house.catalog import PLACES, THINGS
from palestra.worlds.house.commands import Command, read_command

names = st.builds("{} {}".format, st.sampled_from([*THINGS, *PLACES]), st.integers(1, 99))
two_names = st.sampled_from([("take", "from"), ("move", "to"), ("clean", "with"), ("heat", "with"), ("cool", "with")])
commands = st.one_of(
    st.sampled_from([Command("look"), Command("inventory")]),
    st.builds(lambda verb, name: Command(verb, name), st.sampled_from(["go to", "open", "close", "use", "examine"]), names),
    st.builds(lambda verb, thing, place: Command(verb[0], thing, place), two_names, names, names),
)
JOINED = {"take": "from", "move": "to", "clean": "with", "heat": "with", "cool": "with"}


def written(command: Command) -> str:
    if command.place:
        return f"{command.verb} {command.name} {JOINED[command.verb]} {command.place}"
    return f"{command.verb} {command.name}".strip()


@given(
    commands,
    st.text().filter(lambda text: "action" not in text.casefold()),
    st.sampled_from(["{}", "Action: {}", "> {}", "`{}`", "**{}.**", "  {}\n\n", "\t{}\r\n"]),
)
def test_the_last_line_is_the_command(command: Command, before: str, form: str) -> None:
    line = written(command)
    assert read_command(f"{before}\n{form.format(line)}") == command
    assert read_command(f"{before}\n{form.format(line.upper())}") == command
    assert read_command(f"{before}\n{form.format(line.replace(' ', '   '))}") == command


@given(st.text())
def test_any_text_is_read_without_an_exception(text: str) -> None:
    found = read_command(text)
    assert found is None or found.verb in ("look", "inventory", "go to", "open", "close", "use", "examine", *JOINED)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "go",
        "go to",
        "open",
        "take mug 1",
        "take from shelf 1",
        "put mug 1 in fridge 1",
        "look around",
        "go to " + "x" * 200,
    ],
)
def test_other_lines_are_not_commands(line: str) -> None:
    assert read_command(line) is None
