"""Writing down an episode: where two part, and nothing lost on the way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checking.broken import ZOO
from tests.checking.good import Code

from palestra import Task
from palestra.checking import check_env
from palestra.checking.episodes import as_scripted, difference, play
from palestra.errors import MissingData

frames = st.lists(st.text(max_size=8), max_size=5)


def three_turns(info: Any) -> int:
    return 3


@given(frames, frames)
def test_a_difference_is_told_exactly_if_there_is_one(one: list[str], other: list[str]) -> None:
    assert bool(difference(one, other)) == (one != other)


def test_the_place_and_the_text_of_a_difference_are_told() -> None:
    told = difference(["start", "x" * 50 + "apple"], ["start", "x" * 50 + "birch"])
    assert told.startswith("turn 1 gave '…x")
    assert "apple" in told
    assert "birch" in told
    assert difference(["a"], ["b"]).startswith("reset gave 'a' and then 'b'")


def test_an_episode_is_written_down() -> None:
    episode = play(Code, Task("x", 3), as_scripted(["one", "two"]), three_turns)
    assert episode.actions == ("one", "two", "two")
    assert episode.ended
    assert episode.score == 0.0
    assert len(episode.frames) == 4


def test_same_and_other_tasks() -> None:
    first, again, other = (play(Code, Task("x", seed), as_scripted(["one"]), three_turns) for seed in (3, 3, 4))
    assert difference(first.frames, again.frames) == ""
    assert difference(first.frames, other.frames)
    early, late = (play(ZOO["Clock"], Task("x", 3), as_scripted(["one"]), three_turns) for _ in range(2))
    assert difference(early.frames, late.frames)


def test_live_objects_do_not_look_random() -> None:
    first, again = (play(ZOO["LiveInfo"], Task("x", 3), as_scripted(["one"]), three_turns) for _ in range(2))
    assert first.frames == again.frames


def test_an_exception_is_part_of_the_episode() -> None:
    episode = play(ZOO["RaisesOnEmpty"], Task("x", 3), as_scripted(["one", ""]), three_turns)
    assert episode.error.startswith("turn 2: IndexError")
    assert episode.score is None
    assert len(episode.steps) == 1
    assert (
        play(ZOO["RaisingInit"], Task("x", 3), as_scripted(["one"]), three_turns).error == "building: RuntimeError: no engine"
    )


def test_a_circle_in_info_does_not_end_the_check() -> None:
    class Circular(Code):
        def step(self, action: str) -> Any:
            step = super().step(action)
            step.info["self"] = step.info
            return step

    episode = play(Circular, Task("x", 3), as_scripted(["one"]), three_turns)
    assert episode.error.startswith("turn 1: EnvError: info cannot be written: it contains itself")
    assert len(episode.frames) == 2  # the first observation, and the error


class NeedsAnIndex(Code):
    """Is sound, and needs what this machine lacks."""

    def __init__(self) -> None:
        raise MissingData("there is nothing to search: set PALESTRA_SEARCH")


def test_what_this_machine_lacks_is_no_fault_of_the_environment() -> None:
    with pytest.raises(MissingData, match="PALESTRA_SEARCH"):
        check_env(NeedsAnIndex, n=1)
