"""The checks of terminal tasks over final states: right ones pass, and only they."""

from collections.abc import Sequence

import pytest

pytest.importorskip("pyseccomp")

from tests.worlds.terminal.check_pairs import RIGHT_FROM_FINDINGS, RIGHT_FROM_PAGE, WRONG_FROM_FINDINGS, WRONG_FROM_PAGE, Row

from palestra.worlds.terminal.grading import Final, Found, Prints


class OneFile(Final):
    """A final state with the file ``f``; a command prints its content."""

    def __init__(self, content: str | bytes | None, printed: str | None = "") -> None:
        self._content = content.encode() if isinstance(content, str) else content
        self._printed = printed

    def data(self, path: str) -> bytes | None:
        return self._content

    def tree(self, folder: str) -> Sequence[Found]:
        return []

    def processes(self) -> list[list[str]]:
        return []

    def first_processes(self) -> list[list[str]]:
        return []

    async def fresh(self, files: Sequence[Found], command: str) -> str | None:
        return self._printed


async def holds(row: Row) -> bool:
    check, content = row
    if isinstance(check, Prints):
        assert not isinstance(content, bytes)
        return await check.right(OneFile("", content))
    return bool(await check.right(OneFile(content)))  # type: ignore[attr-defined]


async def test_right_final_states_pass() -> None:
    rows = RIGHT_FROM_FINDINGS + RIGHT_FROM_PAGE
    assert [(check, str(content)[:80]) for check, content in rows if not await holds((check, content))] == []


async def test_wrong_final_states_fail() -> None:
    rows = WRONG_FROM_FINDINGS + WRONG_FROM_PAGE
    assert [(check, str(content)[:80]) for check, content in rows if await holds((check, content))] == []
