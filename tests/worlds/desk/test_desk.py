"""The service desk: the oracle serves everybody, the grader finds every broken rule, and the customer can be a player."""

from collections import Counter

import pytest
from tests.worlds.desk.mutants import RULES, mutants

from palestra.errors import UsageError
from palestra.rollouts import collect
from palestra.trajectory import text_of
from palestra.worlds.desk.case import Case
from palestra.worlds.desk.customer import DONE, YES, CustomerState, reply
from palestra.worlds.desk.desk import AGENT, CUSTOMER, ServiceDesk
from palestra.worlds.desk.solving import ANYTHING_ELSE, confirmation_question

SEEDS = 16
"""Enough seeds for every rule to be broken at least once."""


@pytest.mark.gate
@pytest.mark.slow
def test_every_mutant_fails_and_the_grader_names_the_rule() -> None:
    found: Counter[str] = Counter()
    for domain in ("shop", "library"):
        for name, seed, outcome in mutants(domain, range(SEEDS)):
            assert outcome.rule in outcome.last.info["broken"], (name, seed, outcome.last.info)
            assert outcome.last.reward == 0.0
            assert not outcome.last.info["success"]
            found[outcome.rule] += 1
    assert found.keys() == RULES


def _with_a_change() -> tuple[Case, str]:
    """A case whose first request is a change, and the question for it."""
    for seed in range(50):
        env = ServiceDesk("shop", done=2, declined=0, numbered=True)
        env.reset(seed=seed)
        request = env.case.requests[0]
        if request.writes and len(request.terms) > 1:
            return env.case, confirmation_question(request.writes[0])
    raise AssertionError("no seed begins with a change")


def test_a_confirmation_comes_before_anything_else() -> None:
    case, question = _with_a_change()
    start = CustomerState()
    assert reply(case, start, f"{question} {ANYTHING_ELSE}") == (YES, start)
    assert reply(case, start, f"{ANYTHING_ELSE} Please confirm {case.requests[0].terms[0]}.")[1] == start
    for details in ("", case.requests[0].terms[-1]):  # not all of them
        answer, state = reply(case, start, f"Do you confirm {details}? {ANYTHING_ELSE}")
        assert answer.startswith("No, that is not what I asked for.")
        assert state == start


@pytest.mark.parametrize(
    "words", ["Your change is confirmed.", "I can confirm that it is done.", "The confirmation is on its way. Goodbye for now."]
)
def test_words_about_a_confirmation_ask_for_none(words: str) -> None:
    case, _ = _with_a_change()
    answer, state = reply(case, CustomerState(), f"{words} {ANYTHING_ELSE}")
    assert answer.startswith("There is one more thing.")
    assert state.current == 1


def test_two_oracles_play_both_parts() -> None:
    trajectories = collect("tools:desk-shop-players-hard", {AGENT: "oracle", CUSTOMER: "oracle"}, n=5)
    by_player = Counter((one.player, one.reward) for one in trajectories)
    assert by_player == {(AGENT, 1.0): 5, (CUSTOMER, 0.0): 5}
    opening = next(one for one in trajectories if one.player == CUSTOMER).turns[0].observation
    assert "You are a customer" in text_of(opening)


def test_the_customer_answers_what_was_asked() -> None:
    env = ServiceDesk("shop")
    env.reset(seed=3)
    name, postcode = env.case.identity["name"], env.case.identity["postcode"]
    assert text_of(env.step("What is your name?").observation) == f"The customer says: My name is {name}."
    assert text_of(env.step("And the POSTCODE?").observation) == f"The customer says: My postcode is {postcode}."
    assert env.case.requests[0].text in text_of(env.step("Lovely weather.").observation)
    assert "not what I asked for" in text_of(env.step("I delete everything. Do you confirm?").observation)
    assert DONE in text_of(env.step("Anything else?").observation)


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(UsageError, match="shop or library"):
        ServiceDesk("airline")
