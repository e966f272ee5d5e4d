"""A room as HTML for people. It shows only what the agent has seen."""

from html import escape

from palestra.worlds.house.world import House

__all__ = ["drawn_house"]

_HERE, _DOOR, _PLAIN, _QUIET = "#1a7f4e", "#8f5b0c", "#4b5563", "#8390a2"


def drawn_house(house: House, wish: str) -> str:
    """Return the places with their content, the hand, and the task; a question mark stands for what was not seen yet."""
    rows = "".join(_row(house, index) for index in range(len(house.scene.places)))
    held = "nothing" if house.held is None else _label(house, house.held)
    head = f"<div><b>{escape(wish)}</b></div><div>{escape(house.scene.room)}, in the hand: {escape(held)}</div>"
    return f'<div style="font:14px/22px ui-monospace,monospace">{head}{rows}</div>'


def _row(house: House, place: int) -> str:
    named = house.scene.places[place]
    color = _HERE if house.at(place) else _DOOR if named.openable else _PLAIN
    door = "" if not named.openable else " (open)" if place in house.opened else " (closed)"
    box = f"background:{color};color:#fff;padding:0 4px;border-radius:5px"
    return (
        f'<div style="display:flex;gap:6px;margin:2px 0"><span style="{box}">{escape(named.name + door)}</span>'
        f"{_content(house, place)}</div>"
    )


def _content(house: House, place: int) -> str:
    if place not in house.seen:
        return f'<span style="color:{_QUIET}">?</span>'
    return f"<span>{escape(', '.join(_label(house, thing) for thing in house.content(place)))}</span>"


def _label(house: House, thing: int) -> str:
    states = (("clean", house.clean), ("hot", house.hot), ("cold", house.cool), ("on", house.lit))
    words = [word for word, marked in states if thing in marked]
    return house.scene.things[thing].name + (f" ({', '.join(words)})" if words else "")
