import pytest

from palestra import Task
from palestra.registry import make
from palestra.suite.sums import Sums


def numbers_of(split: str, terms: int = 2, count: int = 400) -> set[tuple[int, ...]]:
    env = Sums(terms)
    seen = set()
    for seed in range(count):
        env.reset(task=Task("math:Sums", seed, split=split))
        seen.add(env.numbers)
    return seen


@pytest.mark.parametrize("terms", [2, 3])
def test_no_set_of_numbers_is_on_both_sides_in_any_order(terms: int) -> None:
    train, test = ({tuple(sorted(one)) for one in numbers_of(split, terms)} for split in ("train", "test"))
    assert train
    assert test
    assert not train & test


def test_both_sides_together_are_all_sums_and_a_quarter_is_held_out() -> None:
    train, test = numbers_of("train", count=3000), numbers_of("test", count=3000)
    assert train | test == {(a, b) for a in range(10) for b in range(10)}
    assert len({tuple(sorted(one)) for one in test}) == 14


@pytest.mark.parametrize(
    ("action", "reward", "malformed"),
    [
        ("Answer: {}", 1.0, False),
        ("Answer: 99 no, Answer: {}", 1.0, False),
        ("Answer: 99", 0.0, False),
        ("Answer: {}0", 0.0, False),
        ("Answer: -{}", 0.0, True),
        ("{}", 0.0, True),
        ("", 0.0, True),
    ],
)
def test_only_the_right_answer_in_the_right_form_pays(action: str, reward: float, malformed: bool) -> None:
    env = make("math:Sums")
    total = seed = 0
    while not total:  # a zero with a zero behind it, or a minus before it, is a zero still
        env.reset(seed=seed)
        total = sum(env.unwrapped.numbers)  # type: ignore[union-attr]
        seed += 1
    step = env.step(action.format(total))
    assert step.reward == reward
    assert step.terminated
    assert step.info.get("format_error", False) is malformed
