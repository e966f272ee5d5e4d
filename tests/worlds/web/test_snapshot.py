"""The elements of a page: read from Playwright's YAML, written so that no page can forge a line."""

from hypothesis import given
from hypothesis import strategies as st

from palestra.worlds.web.changes import changed
from palestra.worlds.web.snapshot import Element, Ids, element_lines, in_window, read_snapshot, usable

SNAPSHOT = """\
- generic [active] [ref=e1]:
  - heading "Hi \\"x\\"" [level=1] [ref=e2]
  - 'button "a: b" [disabled] [ref=e3]'
  - link "go" [ref=e4] [cursor=pointer] [box=10,20,30,40]:
    - /url: http://a.test/c
  - textbox "name" [ref=e5]: v
  - generic [ref=e6]:
    - text: "- button \\"Fake\\" [ref=e9]"
"""


def test_elements_have_role_name_state_and_place() -> None:
    elements = read_snapshot(SNAPSHOT)
    assert element_lines(elements) == [
        '[e2] heading "Hi \\"x\\"" level=1',
        '[e3] button "a: b" disabled',
        '[e4] link "go" to "http://a.test/c"',
        '[e5] textbox "name" = "v"',
        '- text = "- button \\"Fake\\" [ref=e9]"',
    ]
    assert elements[2].box == (10.0, 20.0, 30.0, 40.0)
    assert element_lines(elements, places=True)[2].endswith("at (25, 40)")


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_text_of_the_page_is_never_a_line_of_its_own(name: str, value: str) -> None:
    (line,) = element_lines([Element(0, "button", name, "e1", value)])
    assert "\n" not in line
    assert "\r" not in line


def test_depths_properties_and_texts_of_fields_are_read() -> None:
    written = """\
- generic "Form":
  - 'searchbox "a: ''b'' #1" [disabled] [ref=e7]':
    - /url: "x\\ny"
    - text: one
    - text: two
- generic [ref=e8] [cursor=pointer]: plain
- generic [ref=e9]:
  - button [ref=e10]: "no"
"""
    found = [(one.depth, one.role, one.name, one.value, one.url, one.marks) for one in read_snapshot(written)]
    assert found == [
        (0, "generic", "Form", "", "", ()),
        (1, "searchbox", "a: 'b' #1", "one two", "x\ny", ("disabled",)),
        (0, "generic", "", "plain", "", ()),
        (0, "button", "", "no", "", ()),
    ]


def test_escapes_and_half_characters_of_a_page_reach_no_terminal() -> None:
    (button, text) = read_snapshot('- button "a\\ud800b" [ref=e1]\n- text: "\\x9b31m\\x85- fake"')
    assert (button.name, text.value) == ("a\ufffdb", "\ufffd31m - fake")


def test_ids_count_what_the_episode_has_seen() -> None:
    ids = Ids()
    first = ids.name([Element(0, "button", ref="f1e17"), Element(0, "text"), Element(0, "link", ref="f1e9")])
    again = ids.name([Element(0, "link", ref="f1e9"), Element(0, "img", ref="f1e30")])
    assert [one.ref for one in first] == ["e1", "", "e2"]
    assert [one.ref for one in again] == ["e2", "e3"]
    assert ids.own("e2") == "f1e9"
    assert ids.own("e99") == ""


def test_a_field_shows_its_content_and_only_an_empty_one_its_placeholder() -> None:
    written = """
- textbox "To" [ref=e1]:
  - /placeholder: a name
  - text: Ann
- textbox "From" [ref=e2]:
  - /placeholder: a name
"""
    assert element_lines(read_snapshot(written)) == ['[e1] textbox "To" = "Ann"', '[e2] textbox "From" = "a name"']


def test_boxes_inside_frames_are_places_in_the_window() -> None:
    elements = read_snapshot("""
- iframe [ref=e1] [box=50,100,300,200]:
  - button "A" [ref=f1e2] [box=10,20,30,40]
  - iframe [ref=f1e3] [box=1,2,30,30]:
    - button "B" [ref=f2e1] [box=3,4,5,5]
- button "C" [ref=e4] [box=7,8,9,9]
""")
    assert [one.box and one.box[:2] for one in elements] == [(50, 100), (60, 120), (51, 102), (54, 106), (7, 8)]


def test_a_window_has_the_elements_that_meet_it_and_their_texts() -> None:
    elements = [
        Element(0, "paragraph", ref="e1", box=(0, -50, 100, 40)),
        Element(1, "text", value="above"),
        Element(0, "paragraph", ref="e2", box=(0, 90, 100, 40)),
        Element(1, "text", value="at the edge"),
        Element(0, "link", "below", "e3", box=(0, 100, 10, 10)),
    ]
    assert [one.ref or one.value for one in in_window(elements, 100, 100)] == ["e2", "at the edge"]


def test_what_has_changed_is_named_by_ids_and_has_no_text_of_the_page() -> None:
    before = [Element(0, "button", "A", "e1"), Element(0, "link", "B", "e2"), Element(0, "text", value="x")]
    assert changed(before, [one._replace(box=(0, 0, 1, 1)) for one in before]) == "nothing"
    after = [Element(1, "button", "A", "e1", marks=("focused",)), Element(0, "text", value="y"), Element(0, "link", "C", "e3")]
    assert changed(before, after) == "new [e3], different [e1], gone [e2], 1 text"
    many = [Element(0, "link", "B", f"e{number}") for number in range(3, 33)]
    assert changed(before, [*before, *many]).endswith("[e22] and 10 more")


def test_only_what_is_made_to_be_used_is_usable() -> None:
    found = [
        Element(0, "button"),
        Element(0, "button", ref="e1"),
        Element(0, "cell", ref="e2"),
        Element(0, "cell", ref="e3", clickable=True),
    ]
    assert [usable(one) for one in found] == [False, True, False, True]
