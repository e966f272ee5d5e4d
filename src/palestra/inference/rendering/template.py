"""A renderer for any Hugging Face tokenizer with a chat template.

A template is a program over whole conversations; this renderer finds the effect of one more turn by difference. It puts the
new messages behind a fixed short conversation whose last reply is a marker, and runs the template. The text after the marker is
what a turn adds: the end of the reply, the new messages, and the start of the next reply. That text is tokenized alone,
starting at the stop token, where every tokenizer splits. The cost depends on the new messages, not on the conversation.

Some templates rewrite history: they drop the thinking of earlier replies when the next user message arrives. The renderer
tests this once for each role that can follow a reply, for replies with and without thinking. ``extend`` then decides per turn.
It returns ``None``, which starts a new segment with the conversation as the template wants it, only if the template would
change this context. With ``append_only=True`` history stays as it was sampled.

If the template has a form for the role ``tool``, it gets a tool's results under that role, one message per result. Templates
that refuse the role, or only copy its name in front of the text, have no such form: there the result is a user message in its
canonical text form.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from palestra.core import Reply
from palestra.errors import UsageError
from palestra.foundation.encoding import Ints, ints
from palestra.inference.rendering.results import result_chats
from palestra.inference.rendering.shown import shown_text
from palestra.trajectory import Message, ToolResult
from palestra.trajectory.calls import format_result

__all__ = ["TemplateRenderer"]

_REPLY = "PalestraReplyMarker"
_THOUGHT = "PalestraThoughtMarker"
_RESULT = "PalestraResultMarker"
_QUESTION = Message("user", "Q")
_NEXT = {"user": Message("user", "N"), "tool": Message("tool", format_result("f", ToolResult(_RESULT)))}
"""A message of each role that can follow a reply."""
_REMEMBERED = 1024
"""Most tails whose ids are cached: games repeat their texts, and the members of a group see the same ones."""
_SHORT = 2048
"""Characters of the longest tail that is cached. The cache outlives the episodes, and agents may send what they like."""
_THINK, _END_THINK = "<think>", "</think>"


class Rewriting(NamedTuple):
    """What a template does to earlier replies when a message of some role follows."""

    plain: bool
    """Whether it changes a reply without thinking, or the text in front of one."""
    thinking: bool
    """Whether it changes a reply with thinking."""


class TemplateRenderer:
    """Render with the tokenizer's own chat template."""

    def __init__(self, tokenizer: Any, *, append_only: bool = False, options: dict[str, Any] | None = None) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError("this tokenizer has no chat_template; set tokenizer.chat_template or use a renderer of your own")
        self.tokenizer = tokenizer
        self.append_only = append_only
        self._options = options or {}
        """Passed to the template: ``enable_thinking``, ``tools`` and so on."""
        self._encode_tail = lru_cache(_REMEMBERED)(lambda messages: tuple(self._encode(self._tail_text(messages))))
        self.knows_tools = self._knows_tools()
        """Whether the template has a form of its own for the role ``tool``."""
        self._thinks = any(mark in str(tokenizer.chat_template) for mark in (_THINK, "reasoning_content"))
        close = self._tail([_QUESTION])
        self._close = close[: self._first_special(close) + 1]
        eos = tokenizer.eos_token_id
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([self._close[-1], *([] if eos is None else [eos])]))
        self.opening = self._opening()
        """The text that the template puts in front of a reply."""
        self.rewrites = {role: self._rewriting(following) for role, following in _NEXT.items()}
        """Role of the next message → what the template then changes."""

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        # Another process makes its own renderer; caches are not pickled.
        return partial(TemplateRenderer, append_only=self.append_only, options=self._options), (self.tokenizer,)

    def with_tools(self, tools: Sequence[Mapping[str, Any]]) -> "TemplateRenderer":
        """Return a renderer whose prompts list ``tools``, each in the form that chat templates take."""
        options = {**self._options, "tools": [dict(tool) for tool in tools]} if tools else self._options
        return TemplateRenderer(self.tokenizer, append_only=self.append_only, options=options)

    # ------------------------------------------------------------------------------------------------------- the protocol

    def first(self, messages: Sequence[Message]) -> Ints:
        return ints(self._encode(self._text(messages)))

    def extend(self, prompt: Ints, sampled: Ints, messages: Sequence[Message]) -> Ints | None:
        if not messages or any(message.role not in ("user", "tool") for message in messages):
            return None
        if not self.append_only and self._is_rewritten(prompt, sampled, messages):
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
        return self._apply([chat for message in messages for chat in self._chats(message)], opening=opening)

    def _apply(self, chats: list[dict[str, str]], *, opening: bool = True) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                chats, tokenize=False, add_generation_prompt=opening, **self._options
            )
        except Exception as error:  # a template is a program and may raise anything
            roles = ", ".join(chat["role"] for chat in chats)
            raise UsageError(f"the chat template refused the roles ({roles}): {error}") from error
        return text

    def _chats(self, message: Message) -> list[dict[str, str]]:
        content = shown_text(message.content)
        if message.role == "tool":
            return result_chats(content) if self.knows_tools else [{"role": "user", "content": content}]
        chat = {"role": message.role, "content": content}
        return [{**chat, "reasoning_content": message.reasoning} if message.reasoning else chat]

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _tail(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids that follow a reply when ``messages`` come next."""
        if sum(len(shown_text(message.content)) + len(message.reasoning) for message in messages) > _SHORT:
            return self._encode(self._tail_text(messages))
        return list(self._encode_tail(tuple(messages)))

    def _tail_text(self, messages: Sequence[Message]) -> str:
        text = self._text([_QUESTION, Message("assistant", _REPLY), *messages])
        _, reply, tail = text.partition(_REPLY)
        if not reply:
            raise UsageError("the chat template does not show an assistant's reply verbatim: use a renderer of your own")
        return tail

    def _knows_tools(self) -> bool:
        forms = []
        for role in ("tool", "palestra"):
            asked = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": _REPLY}]
            try:
                forms.append(self._apply([*asked, {"role": role, "content": _RESULT, "name": "f"}]).replace(role, "tool"))
            except UsageError:
                forms.append("")
        # A template that treats an invented role in the same way only copies the name; it has no form for tools.
        return _RESULT in forms[0] and forms[0] != forms[1]

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
            raise UsageError(
                "add_generation_prompt makes the chat template change the conversation before it, not only add to it"
            )
        return opened[len(closed) :]

    def _rewriting(self, following: Message) -> Rewriting:
        plain = not self._keeps(_REPLY, Message("assistant", _REPLY), following)
        if not self._thinks:
            return Rewriting(plain, plain)
        opened = self.opening.rstrip().endswith(_THINK)
        sampled = f"{'' if opened else f'{_THINK}{chr(10)}'}{_THOUGHT}\n{_END_THINK}\n\n{_REPLY}"
        thinking = not self._keeps(sampled, Message("assistant", _REPLY, _THOUGHT), following)
        # If the prompt itself opens the thinking, every reply has thinking.
        return Rewriting(thinking if opened else plain, thinking)

    def _keeps(self, sampled: str, reply: Message, following: Message) -> bool:
        """Whether the prompt, the ``sampled`` text after it and ``following`` equal the conversation rendered as a whole."""
        return self._text([_QUESTION]) + sampled + self._tail_text([following]) == self._text([_QUESTION, reply, following])

    def _is_rewritten(self, prompt: Ints, sampled: Ints, messages: Sequence[Message]) -> bool:
        rewriting = [self.rewrites[message.role] for message in messages]
        if any(part.plain for part in rewriting):
            return True
        return any(part.thinking for part in rewriting) and self._holds_thinking([*prompt.tolist(), *sampled.tolist()])

    def _holds_thinking(self, ids: list[int]) -> bool:
        """Whether any reply in ``ids`` contains thinking; a text in which no reply is found counts as one reply."""
        text = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        close = self.tokenizer.decode(self._close[-1:])
        begin = self.opening.partition(_THINK)[0].strip()
        replies = [part.partition(close)[0] for part in text.split(begin)[1:]] if begin else []
        return any(mark in reply for reply in replies or [text] for mark in (_THINK, _END_THINK))

    def _split(self, text: str) -> Reply:
        before, closed, after = text.partition(_END_THINK)
        opened = before.lstrip().startswith(_THINK) or self.opening.rstrip().endswith(_THINK)
        if not closed and not opened:
            return Reply(text)
        return Reply(after.lstrip("\n") if closed else "", before.lstrip().removeprefix(_THINK).strip("\n"))
