"""The scripted customer: gives what is asked for, agrees to what they want, and has one request after the other.

It reads a message for a few words only, so it is the same for every agent: a question for the name is answered by name, a
message that asks for confirmation by yes or no, and "anything else" by the next request. A message that asks for both is
answered by yes or no: what is not confirmed yet comes first. Any other message gets the current request once more.
"""

import re
from dataclasses import dataclass

from palestra.worlds.desk.case import Case

__all__ = ["DONE", "YES", "CustomerState", "brief", "first_words", "has_finished", "reply"]

DONE = "No, that is all. Thank you."
YES = "Yes, please."
_ASKS_ELSE = re.compile(r"\b(anything|something) (else|more)\b|\bfurther (request|question)", re.IGNORECASE)
_QUESTION = re.compile(r"[^.!?]*\?|[^.!?]*\bplease confirm\b[^.!?]*", re.IGNORECASE)
_ASKS_CONFIRMATION = re.compile(r"\bconfirm(?!ed)|\byes\b|\bshall i\b|\bproceed\b|\bis that (right|correct)\b", re.IGNORECASE)


@dataclass(frozen=True)
class CustomerState:
    """Where the customer is in the conversation."""

    current: int = 0
    """The number of the request that they talk about."""
    finished: bool = False
    """They have said that there is nothing more."""


def first_words(case: Case) -> str:
    """The customer's first message."""
    return f"Hello. {case.requests[0].text}"


def reply(case: Case, state: CustomerState, message: str) -> tuple[str, CustomerState]:
    """What the customer says to ``message``, and the state after it."""
    request = case.requests[state.current]
    if _ASKS_ELSE.search(message) and not (request.terms and _has_confirmation_question(message)):
        if state.current + 1 == len(case.requests):
            return DONE, CustomerState(state.current, finished=True)
        return f"There is one more thing. {case.requests[state.current + 1].text}", CustomerState(state.current + 1)
    if _ASKS_CONFIRMATION.search(message):
        if request.terms and all(term in message for term in request.terms):
            return YES, state
        return f"No, that is not what I asked for. {request.text}", state
    if asked := [name for name in case.identity if name in message.lower()]:
        return " ".join(f"My {name} is {case.identity[name]}." for name in asked), state
    return f"{request.text} I cannot say more about it.", state


def _has_confirmation_question(message: str) -> bool:
    """Whether one of the questions in ``message`` asks for confirmation. "Your order is confirmed." is none."""
    questions = [question for question in _QUESTION.findall(message) if not _ASKS_ELSE.search(question)]
    return any(_ASKS_CONFIRMATION.search(question) for question in questions)


def has_finished(words: str) -> bool:
    """Whether another player who plays the customer has said that there is nothing more."""
    return "that is all" in words.lower()


def brief(case: Case) -> str:
    """What another player reads who plays the customer."""
    wishes = "\n".join(f"{place}. {request.text}" for place, request in enumerate(case.requests, 1))
    known = ", ".join(f"{name}: {value}" for name, value in case.identity.items())
    return (
        f"You are a customer at a service desk. About you: {known}. You want the following, one after the other, the next only "
        f"when the desk asks whether there is anything else:\n{wishes}\nGive your data when asked. If the desk asks you to "
        f'confirm what you want, begin your answer with "Yes"; if it is something else, with "No". When the desk asks for more '
        f'and you have no more requests, say "{DONE}"'
    )
