"""Plain English: no file has more offenders than the committed list allows, and the list only shrinks."""

from pathlib import Path

import pytest

from tests.docs.english import (
    ROOT,
    Offender,
    Text,
    _comments,
    _in_text,
    _of_page,
    _of_python,
    allowed,
    files,
    lowered,
    offenders,
)


def words(*texts: Text) -> list[str]:
    return [found for text in texts for _, found, _ in _in_text(text)]


@pytest.mark.slow
def test_no_file_has_more_offenders_than_the_list_allows() -> None:
    counts = allowed()
    over: dict[str, list[Offender]] = {}
    for file in files():
        found = offenders(file)
        if len(found) > counts.get(file.relative_to(ROOT).as_posix(), 0):
            over[file.relative_to(ROOT).as_posix()] = found
    assert not over, "\n".join(
        f"{one.file}:{one.line}: '{one.words}' → {one.instead}" for found in over.values() for one in found
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "Somebody stopped it.",
        "The episode is told of the failure.",
        "It is said to be fast.",
        "10,000 tokens a second",
        "40 tokens a\nsecond",
        "2 a step",
        "The run goes on.",
        "Whether it is here.",
        "Who says nothing for a minute is let go.",
        "how dear a token is",
    ],
)
def test_banned_words_are_found(sentence: str) -> None:
    assert words(Text(sentence, 1))


@pytest.mark.parametrize(
    "sentence",
    [
        "A step of the learner takes a second.",
        "It sends a token. Then a turn ends.",
        "Two classes are told apart by name.",
        "The button goes on the left.",
        "Who wins?",
        "tokens per second",
    ],
)
def test_plain_sentences_pass(sentence: str) -> None:
    assert words(Text(sentence, 1)) == []


def test_code_on_a_page_is_skipped_and_lines_keep_their_numbers() -> None:
    (page,) = _of_page("one\n```console\n$ nobody\n```\n`nobody` and\nnobody\n")
    assert [line for line, _, _ in _in_text(page)] == [6]


def test_python_texts_are_docstrings_strings_f_strings_and_comments() -> None:
    source = 'nobody = 1\n"""Nobody 1."""\nx = f"nobody {nobody} 2"\ny = "nobody " "3"\n# nobody\n# is\n# told\n'
    texts = list(_of_python(source))
    assert words(*texts) == ["Nobody", "nobody", "nobody", "nobody", "is told"]
    assert [text.line for text in _comments(source)] == [5]


def test_lowering_never_raises_a_count_and_drops_mended_files() -> None:
    assert lowered({"a": 3, "b": 2, "c": 1}, {"a": 5, "b": 1, "d": 9}) == {"a": 3, "b": 1}


def test_every_page_is_read() -> None:
    assert {ROOT / "README.md", ROOT / "docs/index.md", Path(ROOT / "src/palestra/core.py")} <= set(files())
