"""A renderer for any Hugging Face tokenizer that has a chat template, known or not.

A template is a program over whole conversations; what one more turn adds is read off by difference. The new messages are put
behind a fixed short conversation whose last reply is a marker, the template is run on that, and whatever follows the marker is
what a turn adds: the close of the reply, the new messages, the opening of the next reply. It is tokenised by itself, beginning
at the stop token, where every tokenizer cuts anyway. The cost is that of the new messages, not of the conversation.

Some templates rewrite history: they drop the thinking of earlier replies as soon as the user speaks again. Whether this one
does is tried out once for each role that can follow a reply. Where it does, ``extend`` answers ``None`` and the conversation
starts over in a new segment, as the template wants it; or, with ``append_only=True``, history is kept as it was sampled.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from palestra.core import Reply
from palestra.encoding import Ints, ints
from palestra.errors import UsageError
from palestra.trajectory import Message, text_of

__all__ = ["TemplateRenderer"]

_REPLY = "PalestraReplyMarker"
_THOUGHT = "PalestraThoughtMarker"
_QUESTION = Message("user", "Q")
_REMEMBERED = 4096
"""Tails whose ids are kept: games say the same things again and again, and the members of a group hear the same."""
_THINK, _END_THINK = "<think>", "</think>"


class TemplateRenderer:
    """Renders by running the tokenizer's own chat template."""

    def __init__(self, tokenizer: Any, *, append_only: bool = False, options: dict[str, Any] | None = None) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError("this tokenizer has no chat_template; set tokenizer.chat_template or use a renderer of your own")
        self.tokenizer = tokenizer
        self.append_only = append_only
        self._options = options or {}
        """Handed to the template: ``enable_thinking``, ``tools`` and the like."""
        self._encode_tail = lru_cache(_REMEMBERED)(lambda messages: tuple(self._encode(self._tail_text(messages))))
        self._knows_tools = True
        self._knows_tools = self._renders(Message("tool", "R"))
        self._thinks = any(mark in str(tokenizer.chat_template) for mark in (_THINK, "reasoning_content"))
        close = self._tail([_QUESTION])
        self._close = close[: self._first_special(close) + 1]
        eos = tokenizer.eos_token_id
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([self._close[-1], *([] if eos is None else [eos])]))
        self.opening = self._opening()
        """What the template puts in front of a reply."""
        self.rewrites = {role: self._rewrites(Message(role, "N")) for role in ("user", "tool")}
        """By role of the next message: whether the template then changes what stands before."""

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        # Another process makes its own; what is remembered here stays here.
        return partial(TemplateRenderer, append_only=self.append_only, options=self._options), (self.tokenizer,)

    # ------------------------------------------------------------------------------------------------------- the protocol

    def first(self, messages: Sequence[Message]) -> Ints:
        return ints(self._encode(self._text(messages)))

    def extend(self, prompt: Ints, sampled: Ints, messages: Sequence[Message]) -> Ints | None:
        if not messages or any(message.role not in ("user", "tool") for message in messages):
            return None
        if not self.append_only and any(self.rewrites[message.role] for message in messages):
            return None
        tail = self._tail(messages)
        if tail[: len(self._close)] != self._close:
            return None
        closed = len(sampled) and int(sampled[-1]) == self._close[-1]
        return ints(tail[len(self._close) :] if closed else tail)

    def read(self, prompt: Ints, ids: Ints) -> Reply:
        end = len(ids) - 1 if len(ids) and int(ids[-1]) in self.stop_ids else len(ids)
        text: str = self.tokenizer.decode(ids[:end].tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return self._split(text) if self._thinks else Reply(text)

    # ----------------------------------------------------------------------------------------------------- what it rests on

    def _text(self, messages: Sequence[Message], *, opening: bool = True) -> str:
        chat = [self._chat(message) for message in messages]
        try:
            text: str = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=opening, **self._options)
        except Exception as error:  # a template is a program of its author; it raises whatever it likes
            roles = ", ".join(message.role for message in messages)
            raise UsageError(f"the chat template refused the roles ({roles}): {error}") from error
        return text

    def _chat(self, message: Message) -> dict[str, str]:
        role = "user" if message.role == "tool" and not self._knows_tools else message.role
        chat = {"role": role, "content": text_of(message.content)}
        return {**chat, "reasoning_content": message.reasoning} if message.reasoning else chat

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _tail(self, messages: Sequence[Message]) -> list[int]:
        """Everything that follows a reply when ``messages`` come next."""
        return list(self._encode_tail(tuple(messages)))

    def _tail_text(self, messages: Sequence[Message]) -> str:
        text = self._text([_QUESTION, Message("assistant", _REPLY), *messages])
        _, found, tail = text.partition(_REPLY)
        if not found:
            raise UsageError("the chat template does not show an assistant's reply verbatim: use a renderer of your own")
        return tail

    def _renders(self, message: Message) -> bool:
        try:
            return text_of(message.content) in self._tail_text([message])
        except UsageError:
            return False

    def _first_special(self, ids: list[int]) -> int:
        special = {*self.tokenizer.all_special_ids, *self.tokenizer.added_tokens_decoder}
        for index, token in enumerate(ids):
            if token in special:
                return index
        raise UsageError(
            f"no stop token: after a reply the chat template writes {self.tokenizer.decode(ids)!r}, without any special token, "
            f"so nothing tells a model to stop; add a special token to the tokenizer and end replies with it"
        )

    def _opening(self) -> str:
        closed, opened = (self._text([_QUESTION], opening=opening) for opening in (False, True))
        if not opened.startswith(closed):
            raise UsageError("with add_generation_prompt the chat template changes the conversation before it, not only adds")
        return opened[len(closed) :]

    def _rewrites(self, following: Message) -> bool:
        asked = self._text([_QUESTION])
        tail = self._tail_text([following])
        replies = [(_REPLY, Message("assistant", _REPLY))]
        if self._thinks:
            begun = "" if self.opening.rstrip().endswith(_THINK) else f"{_THINK}\n"
            sampled = f"{begun}{_THOUGHT}\n{_END_THINK}\n\n{_REPLY}"
            replies = [(sampled, Message("assistant", _REPLY, _THOUGHT))]
        return any(asked + text + tail != self._text([_QUESTION, reply, following]) for text, reply in replies)

    def _split(self, text: str) -> Reply:
        before, closed, after = text.partition(_END_THINK)
        opened = before.lstrip().startswith(_THINK) or self.opening.rstrip().endswith(_THINK)
        if not closed and not opened:
            return Reply(text)
        return Reply(after.lstrip("\n") if closed else "", before.lstrip().removeprefix(_THINK).strip("\n"))
