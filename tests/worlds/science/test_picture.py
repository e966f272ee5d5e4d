"""The picture of an episode, without Java."""

from palestra.worlds.science.picture import Seen, drawn

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
