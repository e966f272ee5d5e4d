import pytest

from palestra.errors import UsageError
from palestra.registry import make_async
from palestra.trajectory import Image
from palestra.wrappers import Reword

GAME = "game:GuessTheNumber-v0-easy"
WORDS = {r".*(higher|lower) than (\d+).*": r"\1 than \2", r".*between (\d+) and (\d+).*": r"from \1 to \2"}


async def test_the_same_game_in_fewer_words() -> None:
    plain, brief = make_async(GAME), Reword(make_async(GAME), move="Guess: {}", observations=WORDS)
    await plain.reset(seed=4)
    observation, _ = await brief.reset(seed=4)
    assert observation == "from 1 to 10"
    while True:
        move = await brief.oracle()
        assert move.startswith("Guess: ")
        told, said = await plain.step(await plain.oracle()), await brief.step(move)
        assert said[1:] == told[1:]
        if said.terminated:
            assert said.observation == told.observation, "what no expression matches stays as it is"
            break
        assert said.observation in {f"{way} than {move[7:]}" for way in ("higher", "lower")}


@pytest.mark.parametrize(("written", "received"), [("Guess: 7", "\\boxed{7}"), ("Guess: 7\n", "\\boxed{7}"), ("7", "7")])
def test_only_a_move_as_it_should_be_written_is_put_into_a_box(written: str, received: str) -> None:
    assert Reword(make_async(GAME), move="Guess: {}").action(written) == received


@pytest.mark.parametrize("move", ["Guess", "{} or {}"])
def test_a_form_has_one_place_for_the_move(move: str) -> None:
    with pytest.raises(UsageError, match="Guess"):
        Reword(make_async(GAME), move=move)


def test_a_picture_and_an_observation_that_nothing_matches_stay_as_they_are() -> None:
    env = Reword(make_async(GAME), observations={"a": "b"})
    picture = (Image(b"pixels", "image/png"),)
    assert env.observation(picture) is picture
    assert env.observation("aa") == "aa"
    assert env.observation("a") == "b"
