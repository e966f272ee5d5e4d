"""Tool results as messages for chat templates: role ``tool``, one message per result."""

from palestra.trajectory.calls import parse_results, sealed

__all__ = ["result_chats"]


def result_chats(content: str) -> list[dict[str, str]]:
    """Return the messages for ``content``, the text of a message of role ``tool``. Unknown fields are left out."""
    chats = []
    for result in parse_results(content):
        chat = {"role": "tool", "content": sealed(result.full_text), "name": result.name, "tool_call_id": result.call}
        chats.append({key: value for key, value in chat.items() if value or key == "content"})
    return chats
