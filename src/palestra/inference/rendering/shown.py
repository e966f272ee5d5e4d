"""The text of a message, for renderers that show a model nothing but text."""

from palestra.errors import UsageError
from palestra.trajectory import Content, Text

__all__ = ["shown_text"]


def shown_text(content: Content) -> str:
    """Return the text of ``content``. Raise ``UsageError`` if it holds an image: the model would not see it."""
    if isinstance(content, str):
        return content
    if not all(isinstance(part, Text) for part in content):
        raise UsageError(
            "the message holds an image, and a policy that samples token ids shows its model text only: play with a chat "
            "policy whose model takes images (--base-url), or choose an environment or option that describes its state as text"
        )
    return "".join(part.text for part in content if isinstance(part, Text))
