"""The elements of a page: read from Playwright's YAML, written so that no page can forge a line."""

import json

from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.web.snapshot import Element, Ids, cleaned, element_lines, read_snapshot

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


@given(st.text(st.characters(exclude_characters="\n\r"), max_size=60))
def test_a_quoted_name_is_one_element_whatever_is_in_it(text: str) -> None:
    name = cleaned(text)
    key = f"button {json.dumps(name, ensure_ascii=False)} [ref=e1]".replace("'", "''")
    (element,) = read_snapshot(f"- '{key}'\n")
    assert (element.name, element.ref) == (name, "e1")
    assert not set("\x85\u2028\u2029\x00\x8f") & set(name)


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
