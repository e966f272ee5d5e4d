"""The picture of an episode, without Java."""

from palestra.envs.science.picture import Seen, drawn
from palestra.viewer.pictures import safe_nodes

START = Seen("Your task is to boil <water>.\n", "This room is called the hallway. In it, you see:\n\tthe agent")


def test_the_picture_shows_the_task_the_score_and_the_last_action_with_its_answer() -> None:
    first, later = drawn(START), drawn(START.after("open door to kitchen", "The door is now open.", 7))
    assert "boil &lt;water&gt;." in first
    assert "0 of 100" in first
    assert "&gt; <b>" not in first
    assert "7 of 100" in later
    assert "after 1 actions" in later
    assert "&gt; <b>open door to kitchen</b>" in later
    assert "The door is now open." in later


def test_the_room_is_the_one_that_was_described_last() -> None:
    kitchen = "This room is called the kitchen."
    seen = START.after("look around", kitchen, 0)
    assert drawn(seen).count(kitchen) == 1
    seen = seen.after("open fridge", "The fridge is now open.", 0)
    assert (seen.room, seen.answer) == (kitchen, "The fridge is now open.")
    assert "hallway" not in drawn(seen)


def test_a_score_out_of_range_is_drawn_at_the_end_of_the_bar_and_the_viewer_keeps_it_all() -> None:
    html = drawn(START.after("focus on agent", "No.", -100))
    assert "-100 of 100" in html
    assert "width:0px" in html
    (node,) = safe_nodes(html)
    assert isinstance(node, dict)
    bar = [child["style"].get("width") for child in node["children"][1]["children"] if isinstance(child, dict)]
    assert bar[:2] == ["0px", "200px"]
