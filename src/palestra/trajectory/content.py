"""Content that an environment shows to a policy: text, or text mixed with images."""

import msgspec

__all__ = ["Content", "Image", "Part", "Text", "text_of"]


class Text(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text inside mixed content."""

    text: str


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture, as the bytes of an image file."""

    data: bytes
    media_type: str = "image/png"


Part = Text | Image
Content = str | tuple[Part, ...]
"""Text, or texts and images in the order in which they are shown."""


def text_of(content: Content) -> str:
    """Return the text of ``content``, with ``[image]`` in place of each image."""
    if isinstance(content, str):
        return content
    return "".join(part.text if isinstance(part, Text) else "[image]" for part in content)
