"""A renderer without transformers, for the tiny models whose tokens are words.

It writes what the chat template of ``palestra.inference.models.build_tiny`` writes: the role, the text and the end of each
message. Special tokens in the text of a message stay text.
"""

import re
from collections.abc import Sequence

from palestra.core import Reply
from palestra.foundation.encoding import Ints, ints
from palestra.inference.rendering.shown import shown_text
from palestra.trajectory import Message

__all__ = ["WordRenderer", "WordTokenizer"]


class WordTokenizer:
    """Text to ids and back.

    Args:
        words: The text of every token id.
        pattern: The regular expression that finds the words of a text.
        unknown: The token for a word that is not in the vocabulary.

    """

    def __init__(self, words: Sequence[str], *, pattern: str, unknown: str) -> None:
        self.words = tuple(words)
        self._ids = {word: id for id, word in enumerate(words)}
        self._pattern = re.compile(pattern)
        self._unknown = self._ids[unknown]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, word: str) -> int:
        return self._ids[word]

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(word, self._unknown) for word in self._pattern.findall(text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.words[id] for id in ids)


class WordRenderer:
    """Renders with a vocabulary of words. ``end`` is the token that ends a message."""

    def __init__(self, tokenizer: WordTokenizer, *, end: str) -> None:
        self.tokenizer = tokenizer
        self._end = tokenizer[end]
        self.stop_ids: tuple[int, ...] = (self._end,)

    def first(self, messages: Sequence[Message]) -> Ints:
        return ints([*self._written(messages), self._role("assistant")])

    def extend(self, prompt: Ints, sampled: Ints, messages: Sequence[Message]) -> Ints | None:
        if not messages or any(message.role not in ("user", "tool") for message in messages):
            return None
        closed = len(sampled) and int(sampled[-1]) == self._end
        return ints([*([] if closed else [self._end]), *self._written(messages), self._role("assistant")])

    def read(self, prompt: Ints, ids: Ints) -> Reply:
        end = len(ids) - 1 if len(ids) and int(ids[-1]) == self._end else len(ids)
        return Reply(self.tokenizer.decode(ids[:end].tolist()))

    def _written(self, messages: Sequence[Message]) -> list[int]:
        return [
            id
            for message in messages
            for id in (self._role(message.role), *self.tokenizer.encode(shown_text(message.content)), self._end)
        ]

    def _role(self, role: str) -> int:
        # The template has no form for the role tool: a result is a user message.
        return self.tokenizer["<|user|>" if role == "tool" else f"<|{role}|>"]
