"""Oracles of the tasks of MiniWoB++ in which something is written into fields."""

import re
from collections.abc import Sequence

from palestra.worlds.web.miniwob.view import View, click, fill, number_of, solves
from palestra.worlds.web.snapshot import Element

__all__: list[str] = []


@solves("enter-text", "enter-text-dynamic")
def _enter_text(view: View) -> str:
    return fill(view, [(view.all("textbox")[0], view.quoted()[0])], "Submit")


@solves("enter-text-2")
def _enter_cased(view: View) -> str:
    word = view.quoted()[0]
    return fill(view, [(view.all("textbox")[0], word.lower() if "lower case" in view.goal else word.upper())], "Submit")


@solves("enter-password")
def _enter_password(view: View) -> str:
    return _typed_in_order(view, [view.quoted()[0]] * 2, "Submit")


@solves("login-user", "login-user-popup")
def _login(view: View) -> str:
    cancel = view.named("Cancel", "button")
    if cancel is not None and view.goal:
        return click(cancel)
    button = next(element.name for element in view.all("button"))
    return _typed_in_order(view, view.quoted()[:2], button)


def _typed_in_order(view: View, texts: list[str], button: str) -> str:
    """Fill the fields from the first to the last, then press ``button``."""
    return fill(view, zip(view.all("textbox"), texts, strict=False), button)


@solves("enter-date")
def _enter_date(view: View) -> str:
    match = re.search(r"(\d\d)/(\d\d)/(\d{4})", view.goal)
    assert match is not None
    return fill(view, [(view.all("textbox")[0], f"{match[3]}-{match[1]}-{match[2]}")], "Submit")


@solves("enter-time")
def _enter_time(view: View) -> str:
    match = re.search(r"(\d+):(\d\d) ([AP])M", view.goal)
    assert match is not None
    hour = int(match[1]) % 12 + 12 * (match[3] == "P")
    return fill(view, [(view.all("textbox")[0], f"{hour:02d}:{match[2]}")], "Submit")


@solves("copy-paste", "copy-paste-2")
def _copy(view: View) -> str:
    """The page compares the text with its spaces, which an observation does not show. So it is copied with keys."""
    fields = view.all("textbox")
    if view.goal.startswith("Copy the text in"):
        written = [element for element in view.pages[0] if element.role == "textbox"]
        longest = max(written, key=lambda element: len(element.value))
        source = next(element for element in fields if element.ref == longest.ref)
    else:
        source = fields[number_of(view.goal) - 1]
    target = next(element for element in view.pages[0] if element.role == "textbox" and not element.value)
    plan = (
        click(source),
        "press [Control+a]",
        "press [Control+c]",
        click(target),
        "press [Control+v]",
        click(view.need("Submit")),
    )
    return plan[min(view.turn, 5)]


@solves("find-word")
def _find_word(view: View) -> str:
    words = re.findall(r"[\w']+", next(element.value for element in view.elements if element.role == "paragraph"))
    return fill(view, [(view.all("textbox")[0], words[number_of(view.goal) - 1])], "Submit")


@solves("scroll-text")
def _scroll_text(view: View) -> str:
    fields = view.all("textbox")
    return fill(view, [(fields[1], re.findall(r"[\w']+", fields[0].value)[-1])], "Submit")


@solves("text-transform")
def _text_transform(view: View) -> str:
    letters = "".join(element.value for element in view.elements if element.role == "generic" and len(element.value) == 1)
    return fill(view, [(view.all("textbox")[0], letters)], "Submit")


@solves("read-table")
def _read_table(view: View) -> str:
    match = re.search(r"value of (.+) into", view.goal)
    assert match is not None
    return fill(view, [(view.all("textbox")[0], _cell(view, match[1]))], "Submit")


@solves("read-table-2")
def _read_table_twice(view: View) -> str:
    labels = [element.value.rstrip(":") for element in view.elements if element.value.endswith(":")]
    return fill(view, zip(view.all("textbox"), (_cell(view, label) for label in labels), strict=False), "Submit")


def _cell(view: View, label: str) -> str:
    cells = [element.name or element.value for element in view.elements if element.role == "cell"]
    return cells[cells.index(label) + 1]


@solves("simple-arithmetic")
def _simple_arithmetic(view: View) -> str:
    left, sign, right = next(element.value for element in view.elements if element.value.endswith("=")).split()[:3]
    return fill(view, [(view.all("textbox")[0], str(_result(int(left), sign, int(right))))], "Submit")


def _result(left: int, sign: str, right: int) -> int:
    return {"+": left + right, "-": left - right, "x": left * right, "*": left * right}[sign]


@solves("simple-algebra")
def _simple_algebra(view: View) -> str:
    left, sign, right, _, total = next(element.value for element in view.elements if " = " in element.value).split()
    signed = 1 if sign == "+" else -1
    answer = int(total) - signed * int(right) if left == "x" else signed * (int(total) - int(left))
    return fill(view, [(view.all("textbox")[0], str(answer))], "Submit")


@solves("form-sequence-2")
def _form_sequence_2(view: View) -> str:
    match = re.search(r'the (\w+) radio button .*"(-?\d+)" into the (\w+) textbox', view.goal)
    assert match is not None
    radio = view.all("radio")[number_of(match[1]) - 1]
    if "checked" not in radio.marks:
        return click(radio)
    return fill(view, [(view.all("textbox")[number_of(match[3]) - 1], match[2])], "Submit")


@solves("multi-layouts", "multi-orderings")
def _movies(view: View) -> str:
    match = re.search(r"for (.+) movies directed by (.+) from year (\d+)", view.goal)
    assert match is not None
    wanted, label = [], ""
    for element in view.elements:
        if element.role == "textbox":
            text = match[2] if "irector" in label else match[1] if "enre" in label else match[3]
            wanted.append((element, text))
        else:
            label = element.name or element.value or label
    button = view.elements[-1] if view.elements[-1].role != "textbox" else view.all("button")[-1]
    return next((f"type [{field.ref}] [{text}] [0]" for field, text in wanted if field.value != text), click(button))


@solves("use-spinner")
def _use_spinner(view: View) -> str:
    return fill(view, [(view.all("spinbutton")[0], str(number_of(view.goal)))], "Submit")


@solves("guess-number")
def _guess_number(view: View) -> str:
    low, high = 0, 9
    for page in view.pages:
        for element in page:
            for word in ("lower", "higher"):
                if f"is {word} than" in element.value:
                    told = number_of(element.value)
                    low, high = (low, min(high, told - 1)) if word == "lower" else (max(low, told + 1), high)
    return fill(view, [(view.all("spinbutton")[0], str((low + high) // 2))], "Submit")


@solves("use-autocomplete", "use-autocomplete-nodelay")
def _use_autocomplete(view: View) -> str:
    start, *end = view.quoted()
    field = view.all("textbox")[0]
    others = [element for element in view.elements if element.ref and element is not field]
    options = [element for element in others if (element.value or element.name).startswith(start)]
    chosen = next((element for element in options if (element.value or element.name).endswith(end[0] if end else "")), None)
    if field.value.startswith(start) and field.value.endswith(end[0] if end else "") and len(field.value) > len(start) + 1:
        return click(view.need("Submit"))
    return click(chosen) if chosen is not None else f"type [{field.ref}] [{start}] [0]"


@solves("search-engine")
def _search_engine(view: View) -> str:
    field = view.all("textbox")[0]
    if field.value != view.quoted()[0]:
        return f"type [{field.ref}] [{view.quoted()[0]}] [0]"
    results = [element for element in view.all("link") if element.name and not re.fullmatch(r"\d+|[<>]", element.name)]
    if not results:
        return click(view.need("Search"))
    match = re.search(r"the (\d+)\w\w search result", view.goal)
    assert match is not None
    page, number = divmod(int(match[1]) - 1, 3)
    turned = sum(
        1 for now, later in zip(view.pages, view.pages[1:], strict=False) if _results(now) and _results(now) != _results(later)
    )
    return click(results[number] if turned >= page else view.need(">", "link"))


def _results(page: Sequence[Element]) -> list[str]:
    return [element.name for element in page if element.role == "link" and not re.fullmatch(r"\d+|[<>]", element.name)]
