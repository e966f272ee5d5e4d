"""Test-time compute: the curves over k samples against brute force, and the command, resumed."""

import asyncio
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.core import Conversation
from palestra.errors import UsageError
from palestra.evaluation.scaling import Sample, Scaling, best_of_k, highest_of_k, majority_of_k, scaling_async, scaling_markdown
from palestra.foundation.seeding import derive
from palestra.foundation.statistics import pass_at_k

samples = st.lists(
    st.builds(Sample, st.sampled_from([0.0, 1.0]), st.sampled_from("ab"), st.integers(0, 3).map(float)), min_size=1, max_size=6
)


def brute(drawn: list[Sample], k: int, chosen: str) -> float:
    """The mean over all choices of k; among equals, the mean."""
    values = []
    for few in combinations(drawn, k):
        if chosen == "majority":
            counts = {sample.answer: sum(other.answer == sample.answer for other in few) for sample in few}
            best = [sample.value for sample in few if counts[sample.answer] == max(counts.values())]
        else:
            best = [sample.value for sample in few if sample.preference == max(other.preference or 0.0 for other in few)]
        values.append(np.mean(best))
    return float(np.mean(values))


@given(samples, st.data())
def test_every_curve_is_the_mean_over_all_choices_of_k(drawn: list[Sample], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(drawn)))
    solved = sum(sample.value == 1.0 for sample in drawn)
    assert highest_of_k(drawn, k) == pytest.approx(pass_at_k(len(drawn), solved, k))
    assert majority_of_k(drawn, k) == pytest.approx(brute(drawn, k, "majority"))
    distinct = [sample._replace(preference=float(number)) for number, sample in enumerate(drawn)]
    assert best_of_k(distinct, k) == pytest.approx(brute(distinct, k, "best"))
    assert best_of_k(drawn, 1) == pytest.approx(solved / len(drawn))


class Guesser:
    """Guesses a number between 1 and 10, the right one more often than others if it may guess again."""

    name = "guesser"
    calls = 0

    def act(self, conversation: Conversation) -> str:
        Guesser.calls += 1
        number = derive(conversation.seed, "guess", conversation.turn).integers(1, 11)
        return f"\\boxed{{{number}}}"


def measure(out: Path, turns: list[int | None]) -> Scaling:
    return asyncio.run(scaling_async("game:GuessTheNumber-v0-easy", Guesser(), turns=turns, samples=4, out=out, n=12))


def test_more_turns_and_more_samples_solve_more_and_a_second_call_plays_nothing(tmp_path: Path) -> None:
    scaling = measure(tmp_path, [1, 4])
    assert list(scaling.turns) == ["1", "4"]
    assert scaling.turns["4"].mean > scaling.turns["1"].mean
    assert list(scaling.samples) == ["pass@k", "majority"], "there are no log-probs, so no judge"
    curve = [estimate.mean for estimate in scaling.samples["pass@k"].values()]
    assert curve == sorted(curve)
    assert scaling.samples["pass@k"]["1"].mean == pytest.approx(scaling.turns["4"].mean)
    assert all(estimate.low <= estimate.mean <= estimate.high for estimate in scaling.samples["majority"].values())
    calls = Guesser.calls
    assert measure(tmp_path, [1, 4]) == scaling
    assert Guesser.calls == calls, "resumed: every episode was there"
    assert msgspec.json.decode((tmp_path / "scaling.json").read_bytes(), type=Scaling) == scaling
    assert (tmp_path / "scaling.md").read_text() == scaling_markdown(scaling)
    assert (tmp_path / "scaling.svg").read_text().count("<polygon") == 3


def test_the_environments_own_limit_is_in_the_table_and_not_in_the_figure(tmp_path: Path) -> None:
    scaling = measure(tmp_path, [None])
    assert "| own |" in scaling_markdown(scaling)
    with pytest.raises(UsageError, match="at least one turn limit"):
        measure(tmp_path / "none", [])
