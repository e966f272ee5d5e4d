"""The map of a text adventure. Needs no TextWorld."""

from palestra.worlds.textworld.picture import Seen, drawn_game, map_of

OPENING = "Find the coin.\n\n-= Attic =-\nYou are in an attic."
WALK = [
    Seen("go east", "-= Bath =-\nA bath."),
    Seen("go south", "You can't go that way."),
    Seen("open door", "You open the door."),
    Seen("go north", "\n-= Cellar & Co =-\nA cellar."),
]


def test_the_map_has_the_rooms_that_were_entered() -> None:
    assert map_of(OPENING, []) == ({(0, 0): "Attic"}, (0, 0))
    assert map_of(OPENING, WALK) == ({(0, 0): "Attic", (1, 0): "Bath", (1, -1): "Cellar & Co"}, (1, -1))
    assert map_of(OPENING, [*WALK, Seen("go south", "-= Bath =-")])[1] == (1, 0)


def test_the_picture_has_a_cell_per_place_and_the_last_commands() -> None:
    shown = drawn_game("0 of 1 points, turn 4 of 20", OPENING, WALK)
    assert shown.count("<td") == 4
    assert "<td></td>" in shown
    assert "Cellar &amp; Co</td>" in shown
    assert "&gt; go south <span" in shown
    assert "0 of 1 points" in shown
