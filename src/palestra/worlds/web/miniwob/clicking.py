"""Oracles of the tasks of MiniWoB++ that are solved by clicks."""

import re

from palestra.worlds.web.miniwob.view import View, click, number_of, solves

__all__: list[str] = []

_COLORS = {
    "red": "255, 0, 0",
    "blue": "0, 0, 255",
    "olive": "128, 128, 0",
    "lime": "0, 255, 0",
    "black": "0, 0, 0",
    "white": "255, 255, 255",
    "grey": "128, 128, 128",
    "purple": "128, 0, 128",
    "orange": "255, 165, 0",
    "yellow": "255, 255, 0",
    "cyan": "0, 255, 255",
    "pink": "255, 192, 203",
    "magenta": "255, 0, 255",
}


@solves("click-test")
def _click_test(view: View) -> str:
    return click(view.all("button")[0])


@solves("click-test-2", "click-test-transfer")
def _click_one(view: View) -> str:
    return click(view.need("ONE", "button"))


@solves("click-button", "unicode-test")
def _click_button(view: View) -> str:
    return click(view.need(view.quoted()[0], "button"))


@solves("click-button-sequence")
def _click_sequence(view: View) -> str:
    return click(view.need("TWO" if view.turn else "ONE", "button"))


@solves("button-delay")
def _button_delay(view: View) -> str:
    if view.turn == 0:
        return click(view.need("ONE"))
    seconds = number_of(view.goal.partition("wait")[2])
    return "wait" if view.turn < 2 * seconds else click(view.need("TWO"))


@solves("click-checkboxes", "click-checkboxes-large", "click-checkboxes-transfer")
def _click_checkboxes(view: View) -> str:
    listed = view.goal.removeprefix("Select ").rpartition(" and click")[0]
    wanted = set() if listed == "nothing" else {word.strip() for word in listed.split(",")}
    for box in view.all("checkbox"):
        if (box.name in wanted) != ("checked" in box.marks):
            return click(box)
    return click(view.need("Submit"))


@solves("click-option")
def _click_option(view: View) -> str:
    wanted = view.need(view.goal.removeprefix("Select ").rpartition(" and click")[0], "radio")
    return click(view.need("Submit") if "checked" in wanted.marks else wanted)


@solves("choose-list")
def _choose_list(view: View) -> str:
    wanted = view.goal.removeprefix("Select ").rpartition(" from the list")[0]
    if any(element.role == "option" and element.name == wanted and "selected" in element.marks for element in view.elements):
        return click(view.need("Submit"))
    return f"select [{view.all('combobox')[0].ref}] [{wanted}]"


@solves("click-dialog")
def _click_dialog(view: View) -> str:
    return click(view.need("Close", "button"))


@solves("click-dialog-2")
def _click_dialog_button(view: View) -> str:
    name = view.quoted()[0]
    return click(view.need("Close" if name == "x" else name, "button"))


@solves("click-link")
def _click_link(view: View) -> str:
    return click(view.need(view.quoted()[0], "link"))


@solves("click-tab")
def _click_tab(view: View) -> str:
    return click(view.need(view.goal.removeprefix("Click on ").rstrip("."), "link"))


@solves("click-tab-2", "click-tab-2-easy", "click-tab-2-medium", "click-tab-2-hard")
def _click_tab_link(view: View) -> str:
    tabs = [element for element in view.all("link") if element.url.startswith("#tabs-")]
    wanted = next((element for element in view.all("link") if element.name == view.quoted()[0] and not element.url), None)
    return click(wanted or tabs[min(view.turn + 1, len(tabs) - 1)])


@solves("click-collapsible", "click-collapsible-nodelay")
def _click_collapsible(view: View) -> str:
    return click(view.need("Submit", "button") if view.turn else view.all("tab")[0])


@solves("click-collapsible-2", "click-collapsible-2-nodelay")
def _click_section_link(view: View) -> str:
    wanted = view.named(view.quoted()[0], "link")
    sections = [element for element in view.all("tab") if element.name.startswith("Section")]
    return click(wanted or sections[min(view.turn, len(sections) - 1)])


@solves("click-color")
def _click_color(view: View) -> str:
    match = re.search(r"Click on the (\w+) colored box", view.goal)
    assert match is not None
    return click(view.need(f"color rgb({_COLORS[match[1]]})"))


@solves("identify-shape")
def _identify_shape(view: View) -> str:
    shape = next(element.name for element in view.all("img") if element.name)
    kind = next(
        (name for word, name in (("circle", "Circle"), ("rect", "Rectangle"), ("polygon", "Triangle")) if f" {word}" in shape),
        "",
    )
    if not kind:
        kind = "Number" if re.search(r'"\d"', shape) else "Letter"
    return click(view.need(kind, "button"))


@solves("ascending-numbers")
def _ascending_numbers(view: View) -> str:
    if view.turn == 0:
        return click(view.need("1"))
    # The numbers are hidden from now on. The squares that hide them stand in the same order.
    left = [element.value for element in view.pages[0] if element.value.isdigit() and int(element.value) > view.turn]
    squares = [element for element in view.all("img") if element.name.startswith("rect")][-len(left) :]
    return click(squares[left.index(str(view.turn + 1))])


@solves("focus-text")
def _focus(view: View) -> str:
    return click(view.all("textbox")[0])


@solves("focus-text-2")
def _focus_nth(view: View) -> str:
    return click(view.all("textbox")[number_of(view.goal) - 1])


@solves("find-greatest")
def _find_greatest(view: View) -> str:
    cards = [element for element in view.all("generic") if element.value.isdigit()]
    return click(max(cards, key=lambda element: int(element.value)) if view.turn == 0 else view.need("Submit"))


@solves("buy-ticket")
def _buy_ticket(view: View) -> str:
    tickets = []
    minutes = 0
    for element in view.elements:
        time = re.fullmatch(r"(\d+)h (\d+)m", element.value)
        if time is not None:
            minutes = int(time[1]) * 60 + int(time[2])
        if element.role == "button" and element.name.startswith("Book for $"):
            tickets.append((minutes, int(element.name.removeprefix("Book for $")), element))
    by_price = "price" in view.goal or "cheap" in view.goal or "expensive" in view.goal
    most = any(word in view.goal for word in ("longest", "most expensive", "highest"))
    ordered = sorted(tickets, key=lambda ticket: ticket[1 if by_price else 0])
    return click(ordered[-1 if most else 0][2])


@solves("odd-or-even")
def _odd_or_even(view: View) -> str:
    rows = [element for element in view.elements if re.fullmatch(r"-?\d+", element.value)]
    if view.turn >= len(rows):
        return click(view.need("Submit"))
    row = rows[view.turn]
    at = list(view.elements).index(row)
    if int(row.value) % 2:
        return click([element for element in view.elements[:at] if element.name == "Odd"][-1])
    return click(next(element for element in view.elements[at:] if element.name == "Even"))


@solves("phone-book")
def _phone_book(view: View) -> str:
    match = re.search(r"Find (\w+) in .* their (\w+)", view.goal)
    assert match is not None
    if view.named(match[1], "heading") is None:
        return click(view.need(">", "link"))
    label = {"email": "Email:", "phone": "Phone:", "address": "Address:"}.get(match[2], "Phone:")
    at = next(number for number, element in enumerate(view.elements) if element.value == label)
    return click(view.elements[at + 1])


@solves("navigate-tree")
def _navigate_tree(view: View) -> str:
    wanted = view.named(view.quoted()[-1])
    closed = [element for element in view.elements if "expandable-hitarea" in element.name]
    return click(wanted or closed[0])


@solves("social-media-all", "social-media-some")
def _social_media(view: View) -> str:
    match = re.search(r'the "(\w+)" button on (all|\d+) posts? by (@\w+)', view.goal)
    assert match is not None
    icons, mine = [], False
    for element in view.elements:
        if "@" in element.value:
            mine = element.value.split()[-1] == match[3]
        if mine and element.name.split()[:1] == [match[1].lower()]:
            icons.append(element)
    count = len(icons) if match[2] == "all" else int(match[2])
    return click(icons[view.turn] if view.turn < count else view.need("Submit"))


@solves("email-inbox-delete", "email-inbox-important")
def _email_icon(view: View) -> str:
    match = re.search(r"email by (\w+) and click the (\w+) icon", view.goal)
    assert match is not None
    at = next(number for number, element in enumerate(view.elements) if element.value == match[1])
    return click(next(element for element in view.elements[at:] if element.name.split()[:1] == [match[2]]))


@solves("generate-number")
def _generate_number(view: View) -> str:
    shown = next((element.value for element in view.elements if re.fullmatch(r"-?\d+", element.value)), "")
    return click(view.need("Submit" if shown and _fits(view.goal, int(shown)) else "Generate"))


def _fits(goal: str, number: int) -> bool:
    if "less than" in goal:
        return number < number_of(goal)
    if "greater than" in goal:
        return number > number_of(goal)
    return number % 2 == ("odd" in goal)


@solves("stock-market")
def _stock_market(view: View) -> str:
    limit = float(view.goal.rpartition("$")[2].rstrip("."))
    shown = next(element.value for element in view.elements if element.value.startswith("Stock price"))
    return click(view.need("Buy")) if float(shown.rpartition("$")[2]) < limit else "wait"
