"""What a perfect agent does next: it identifies, reads, asks for confirmation, changes, reports, and closes the case."""

from palestra.trajectory import ToolCall
from palestra.trajectory.calls import format_call
from palestra.worlds.desk.case import CLOSE_CASE, Request
from palestra.worlds.desk.customer import CustomerState
from palestra.worlds.desk.record import Record

__all__ = ["confirmation_question", "next_action"]

ANYTHING_ELSE = "Is there anything else that I can do for you?"


def next_action(record: Record, state: CustomerState, asked_identity: bool) -> str:
    """Return the next action, given everything that has happened.

    Args:
        record: The account of the episode.
        state: Where the customer is.
        asked_identity: The customer has said who they are.
    """
    if not record.identified:
        if not asked_identity:
            return f"Good day. May I have your {' and '.join(record.case.identity)}, please?"
        return format_call(ToolCall(record.domain.identify, dict(record.case.identity)))
    if state.finished:
        return format_call(ToolCall(CLOSE_CASE, {}))
    return _settle(record, record.case.requests[state.current])


def _settle(record: Record, request: Request) -> str:
    for call in request.reads:
        if call not in record.done:
            return format_call(call)
    for call in request.writes:
        if call in record.done:
            continue
        question = confirmation_question(call)
        if record.domain.tools[call.name].confirmed and record.agreed != question:
            return question
        return format_call(call)
    return f"{request.reply} {ANYTHING_ELSE}"


def confirmation_question(call: ToolCall) -> str:
    """A message that names a change with all its details and asks for agreement."""
    details = ", ".join(
        f"{name.replace('_', ' ')} {', '.join(value) if isinstance(value, list) else value}"
        for name, value in call.arguments.items()
    )
    return f"I am going to {call.name.replace('_', ' ')}: {details}. Do you confirm?"
