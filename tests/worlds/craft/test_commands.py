"""The commands of the crafting worlds: what is read, and that any text can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.authoring.action_line import action_line
from palestra.worlds.craft.commands import LOOK, CraftItem, FetchItem, line_of_agentgym, read_command


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("get 2 oak logs", FetchItem(2, "oak logs")),
        ("  GET  2   Oak Logs. ", FetchItem(2, "oak logs")),
        ("craft 4 stick using 2 planks", CraftItem("stick", {"planks": 2})),
        ("craft stick using 2 oak planks, 1 coal", CraftItem("stick", {"oak planks": 2, "coal": 1})),
        ("inventory", LOOK),
        *(
            (line, None)
            for line in (
                "",
                "get",
                "get oak logs",
                "get 0 oak logs",
                "get -1 oak logs",
                "get 1234567 oak logs",
                "get ٣ oak logs",
                "craft stick",
                "craft stick using",
                "craft stick using planks",
                "craft stick using 1 a, 1 a",
                "craft stick using 1 a,",
                "inventory now",
                "take 1 stick",
                "get 1 " + "x" * 2000,
            )
        ),
    ],
)
def test_what_a_line_means(line: str, command: object) -> None:
    assert read_command(line) == command


def test_agentgym_asks_for_exactly_one_label() -> None:
    assert line_of_agentgym("Thought: wood\nAction: get 1 log\nmore") == "get 1 log"
    assert line_of_agentgym("Action:\nget 1 log") == "get 1 log"
    assert line_of_agentgym("get 1 log") == line_of_agentgym("Action: get 1 log\nAction: get 1 log") == ""


_names = st.text("abcdefgh ", min_size=1).map(lambda text: " ".join(text.split())).filter(bool)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for line in (action_line(text), line_of_agentgym(text)):
        assert "\n" not in line
        assert read_command(line) is None or isinstance(read_command(line), tuple)


@given(st.integers(1, 999_999), _names, st.dictionaries(_names, st.integers(1, 999_999), min_size=1, max_size=9))
def test_what_is_written_is_read_back(count: int, item: str, inputs: dict[str, int]) -> None:
    assert read_command(f"get {count} {item}") == FetchItem(count, item)
    listed = ", ".join(f"{number} {name}" for name, number in inputs.items())
    assert read_command(f"craft {count} {item} using {listed}") == CraftItem(item, inputs)
