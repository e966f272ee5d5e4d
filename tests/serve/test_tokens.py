"""Bearer tokens: which ones a server accepts."""

from pathlib import Path

import pytest

from palestra.errors import UsageError
from palestra.serve.tokens import BearerTokens, new_token, read_token_file

A, B = "kV7nQ2xLr9TzWc4Jd8YbHf3Ms6Pg1Ua0", "00112233445566778899aabbccddeeff"


def test_each_token_has_an_owner_of_its_own() -> None:
    tokens = BearerTokens([A, B])
    assert tokens.owner([f"Bearer {A}"]) == tokens.owner([f"bearer  {A} "])
    assert None not in (tokens.owner([f"Bearer {A}"]), tokens.owner([f"Bearer {B}"]))
    assert tokens.owner([f"Bearer {A}"]) != tokens.owner([f"Bearer {B}"])


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", A, f"Basic {A}", f"Bearer {A}x", f"Bearer {A[:-1]}", "Bearer é\udc80", f"Token {A}"]
)
def test_no_other_header_has_an_owner(header: str) -> None:
    assert BearerTokens([A]).owner([header]) is None


@pytest.mark.parametrize("headers", [[], [f"Bearer {A}"] * 2, [f"Bearer {A}", "x"], ["x", f"Bearer {A}"]])
def test_a_request_presents_exactly_one_token(headers: list[str]) -> None:
    assert BearerTokens([A]).owner(headers) is None


@pytest.mark.parametrize("token", ["", "short", "a" * 64, "ab" * 16, A[:21], "é" + A, A + "\n"])
def test_a_token_that_can_be_guessed_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="128 bits"):
        BearerTokens([token])


def test_a_new_one_is_good() -> None:
    assert BearerTokens(new_token()).owner([f"Bearer {A}"]) is None


def test_a_server_needs_one() -> None:
    with pytest.raises(UsageError, match="at least one token"):
        BearerTokens([])


def test_a_missing_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    made = read_token_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token_file(path) == made
    assert BearerTokens(made).owner([f"Bearer {made[0]}"])


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o620, 0o602])
def test_a_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text(A)
    path.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        read_token_file(path)
    path.chmod(0o400)
    assert read_token_file(path) == [A]


def test_a_file_holds_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(f"{A}\n\n  {B}\n")
    assert read_token_file(path) == [A, B]
    path.write_text("\n")
    with pytest.raises(UsageError, match="holds no token"):
        read_token_file(path)
