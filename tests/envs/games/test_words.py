import pytest

from palestra.envs.games.words import common_words, letters_only, rare_words


def test_the_lists_hold_plain_words_once() -> None:
    seen = set[str]()
    for length in range(3, 11):
        for words in (common_words(length), rare_words(length)):
            assert len(words) > 50
            assert list(words) == sorted(set(words))
            assert all(len(word) == length and word.isascii() and word.isalpha() and word.islower() for word in words)
            assert seen.isdisjoint(words)
            seen.update(words)
    assert {"house", "water", "sun"} <= seen


@pytest.mark.parametrize(
    ("answer", "word"),
    [("crane", "CRANE"), (" c r\na n e ", "CRANE"), ("", None), ("naïve", None), ("a1", None), ("ſun", None), ("ß", None)],
)
def test_only_english_letters_are_read(answer: str, word: str | None) -> None:
    assert letters_only(answer) == word
