import pytest

from palestra.suite.games.countdown import Calculation, Countdown, calculated


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1 + 2 * 3", Calculation((1, 2, 3), 7)),
        ("(1 + 2) * 3", Calculation((1, 2, 3), 9)),
        ("18 / 3 / (2 * 3) + 7 - (4 - 1)", Calculation((18, 3, 2, 3, 7, 4, 1), 5)),
        ("8 - 3 - 2", Calculation((8, 3, 2), 3)),
        ("8 / 3", Calculation((8, 3), None)),
        ("8 / (3 - 3)", Calculation((8, 3, 3), None)),
        ("2 - 5", Calculation((2, 5), -3)),
        *((text, None) for text in ("", "()", "1 +", "1 2", "(1", "1)", "-1", "1 ** 2", "1 // 2", "٣ + 1", "1.5", "a + 1")),
        *((text, None) for text in ("1111111111 + 1", "__import__('os')")),
    ],
)
def test_known_expressions(text: str, found: Calculation | None) -> None:
    assert calculated(text) == found


def test_other_ways_to_write_signs() -> None:
    game = Countdown(3, 5)
    game.reset(seed=0)
    written = game.solution.replace("*", "\\times").replace("/", "÷").replace("-", "−")
    assert game.step(f"\\boxed{{{written}}}").info["success"]


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_only_the_given_numbers_once_each_win_within_the_turns(count: int) -> None:
    game = Countdown(count, 5)
    for seed in range(20):
        game.reset(seed=seed)
        found = calculated(game.solution)
        assert found is not None
        assert (found.value, sorted(found.numbers)) == (game.target, sorted(game.numbers))
        assert game.target not in game.numbers
        assert (10 <= game.target <= 100) if count < 5 else (100 <= game.target <= 999)
        wrong = (str(game.target), f"{game.solution} + 0", f"{game.solution} * 1 * 1", str(game.numbers[0]))
        assert [game.step(f"\\boxed{{{text}}}")[1:4] for text in wrong] == [(0.0, False, False)] * 4
        twin = game.fork()
        assert twin.step(f"\\boxed{{{game.solution}}}")[1:4] == (1.0, True, False)
        assert game.step(f"\\boxed{{{game.numbers[0]}}}")[1:4] == (0.0, False, True)
