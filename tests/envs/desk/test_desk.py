"""The service desk: the oracle serves everybody, the grader finds every broken rule, and the customer can be a player."""

from collections import Counter
from typing import Any

import pytest
from tests.envs.desk.mutants import RULES, mutants, played

from palestra.calls import format_call, parse_results
from palestra.core import Conversation
from palestra.envs.desk.case import Case
from palestra.envs.desk.customer import DONE, YES, CustomerState, reply
from palestra.envs.desk.desk import AGENT, CUSTOMER, ServiceDesk
from palestra.envs.desk.solving import ANYTHING_ELSE, confirmation_question
from palestra.errors import UsageError
from palestra.rollout import collect
from palestra.trajectory import ToolCall, text_of

SEEDS = 16
"""Enough seeds for every rule to be broken at least once."""
LEVELS = ({"done": 1, "declined": 0, "numbered": True}, {"done": 2, "declined": 2, "numbered": False})


@pytest.mark.parametrize("domain", ["shop", "library"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_oracle_serves_every_customer(domain: str, level: dict[str, Any]) -> None:
    env = ServiceDesk(domain, **level)
    for seed in range(60):
        last = played(env, seed).last
        assert (last.info["success"], last.info["broken"]) == (True, [])
        assert set(last.info["tools"]["totals"]) == {"ok"}
        assert last.reward == 1.0


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
        if request.writes and request.terms:
            return env.case, confirmation_question(request.writes[0])
    raise AssertionError("no seed begins with a change")


def test_a_confirmation_comes_before_anything_else() -> None:
    case, question = _with_a_change()
    start = CustomerState()
    assert reply(case, start, f"{question} {ANYTHING_ELSE}") == (YES, start)
    assert reply(case, start, f"{ANYTHING_ELSE} Please confirm {case.requests[0].terms[0]}.")[1] == start
    answer, state = reply(case, start, f"Do you confirm? {ANYTHING_ELSE}")  # without the details
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


def test_today_s_date_is_no_second_answer() -> None:
    for seed in range(30):
        env = ServiceDesk("library", done=2, declined=0, numbered=True)
        env.reset(seed=seed)
        place = next((place for place, request in enumerate(env.case.requests) if request.tells), None)
        if place is None:
            continue
        while not (step := env.step(_dated(env, place))).terminated:
            pass
        assert step.info["broken"] == []


def _dated(env: ServiceDesk, place: int) -> str:
    action = env.oracle()
    settles = env.state.current == place and action.endswith(ANYTHING_ELSE)
    return f"Today is {env.case.numbers['today']}. {action}" if settles else action


def test_two_oracles_play_both_parts() -> None:
    trajectories = collect("tools:desk-shop-players-hard", {AGENT: "oracle", CUSTOMER: "oracle"}, n=5)
    by_player = Counter((one.player, one.reward) for one in trajectories)
    assert by_player == {(AGENT, 1.0): 5, (CUSTOMER, 0.0): 5}
    opening = next(one for one in trajectories if one.player == CUSTOMER).turns[0].observation
    assert "You are a customer" in text_of(opening)


class Refusing:
    """A customer who never agrees."""

    def act(self, conversation: Conversation) -> str:
        said = text_of(conversation.observation)
        if "anything else" in said and conversation.turn > 0:
            return DONE
        known = said.partition("About you: ")[2].partition(". You want")[0]
        conversation.memory.setdefault("known", known)
        return f"No. {conversation.memory['known']}"


def test_a_customer_who_never_agrees_keeps_the_oracle_asking() -> None:
    trajectories = collect("tools:desk-library-players-easy", {AGENT: "oracle", CUSTOMER: Refusing()}, n=6)
    agents = [one for one in trajectories if one.player == AGENT]
    asked = [one for one in agents if sum("Do you confirm?" in turn.action for turn in one.turns) > 3]
    assert asked, "some task needs a confirmation"
    assert all(one.reward == 0.0 and one.truncated for one in asked)


def test_the_customer_answers_what_was_asked() -> None:
    env = ServiceDesk("shop")
    env.reset(seed=3)
    name, postcode = env.case.identity["name"], env.case.identity["postcode"]
    assert text_of(env.step("What is your name?").observation) == f"The customer says: My name is {name}."
    assert text_of(env.step("And the POSTCODE?").observation) == f"The customer says: My postcode is {postcode}."
    assert env.case.requests[0].text in text_of(env.step("Lovely weather.").observation)
    assert "not what I asked for" in text_of(env.step("I delete everything. Do you confirm?").observation)
    assert DONE in text_of(env.step("Anything else?").observation)


def test_yes_comes_only_for_the_right_record() -> None:
    env = ServiceDesk("shop")
    for seed in range(50):
        env.reset(seed=seed)
        if env.case.requests[0].terms:
            break
    right = " and ".join(env.case.requests[0].terms)
    assert YES in text_of(env.step(f"Shall I proceed with {right}?").observation)
    assert YES not in text_of(env.step("Shall I proceed with W0?").observation)


def test_malformed_calls_are_answered() -> None:
    env = ServiceDesk("library")
    env.reset(seed=0)
    for action in (
        "<tool_call>",
        "<tool_call>{}</tool_call>",
        format_call(ToolCall("fly", {})),
        format_call(ToolCall("get_loan", {})),
        format_call(ToolCall("get_loan", {"loan": 5})),
        format_call(ToolCall("renew_loan", {"loan": "L1", "days": 10**30})),
        format_call(ToolCall("find_member", {"name": "x", "card": "y"})),
    ):
        step = env.step(action)
        assert step.info["role"] == "tool"
        assert not any(result.ok for result in parse_results(text_of(step.observation)))
    assert "Write a message" in text_of(env.step("  ").observation)


def test_a_long_message_with_many_calls_runs_the_first_ones() -> None:
    env = ServiceDesk("shop")
    env.reset(seed=0)
    step = env.step(format_call(ToolCall("list_articles", {"product": "lamp"})) * 20)
    assert len(parse_results(text_of(step.observation))) == 9


def test_the_picture_is_escaped() -> None:
    env = ServiceDesk("shop")
    env.reset(seed=1)
    env.record.db["customers"]["C1"] = {"name": "<script>"}
    assert "<script>" not in env.render()


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(UsageError, match="shop or library"):
        ServiceDesk("airline")
