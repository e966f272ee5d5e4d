r"""Find the answer in a model's text.

Models are asked to put the answer into ``\boxed{…}`` and often write several; the last complete one counts. The scan is
linear and respects nested braces, so ``\boxed{\frac{1}{2}}`` is one answer, and a megabyte of ``\boxed{`` costs little.
``<answer>…</answer>`` and fenced code follow the same rule: the last complete one counts. Where the first answer is final,
``first_stated_answer`` reads it.
"""

import re

__all__ = ["fenced_code", "first_stated_answer", "last_answer", "last_boxed", "stated_answer"]

_OPENING = "\\boxed{"
_BRACES = re.compile(r"\{+|\}+")
_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_BOXES_AND_BRACES = re.compile(r"\\boxed\{|\{+|\}+")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last complete ``\boxed{…}``, stripped; ``None`` if there is none."""
    _, opening, rest = text.rpartition(_OPENING)
    content, closing, _ = rest.partition("}")
    if opening and closing and "{" not in content:
        return content.strip()  # the common case: closed, and nothing nests
    end = text.rfind("}")
    start = text.rfind(_OPENING, 0, end + 1)
    while start != -1:
        content_start = start + len(_OPENING)
        close = _closing_brace(text, content_start, end + 1)
        if close != -1:
            return text[content_start:close].strip()
        # Unbalanced from here on: a complete one may only lie before this opening.
        end = start
        start = text.rfind(_OPENING, 0, start)
    return None


def _closing_brace(text: str, start: int, limit: int) -> int:
    """Return where the brace opened just before ``start`` closes; -1 if not before ``limit``."""
    depth = 1
    # One turn per run of equal braces, so that a deep nest costs no more than a flat one.
    for run in _BRACES.finditer(text, start, limit):
        length = run.end() - run.start()
        if text[run.start()] == "{":
            depth += length
        elif depth <= length:
            return run.start() + depth - 1
        else:
            depth -= length
    return -1


def last_answer(text: str) -> str | None:
    """Return the content of the last complete ``<answer>…</answer>``, stripped; ``None`` if there is none."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end != -1 else -1
    return None if start == -1 else text[start + len("<answer>") : end].strip()


def stated_answer(text: str) -> str | None:
    r"""Return the last ``\boxed{…}`` or, if there is none, the last ``<answer>…</answer>``; ``None`` if there is neither."""
    boxed = last_boxed(text)
    return last_answer(text) if boxed is None else boxed


def first_stated_answer(text: str) -> str | None:
    r"""Return the complete ``\boxed{…}`` or ``<answer>…</answer>`` that begins first; ``None`` if there is neither."""
    spans = [span for span in (_first_box(text), _first_tag(text)) if span is not None]
    return text[slice(*min(spans))].strip() if spans else None


def _first_box(text: str) -> tuple[int, int] | None:
    """Return where the content of the first complete box begins and ends."""
    first: tuple[int, int] | None = None
    # Where the content of each open box begins, or 0 for a brace, and how many: one turn per run of equal braces.
    open_: list[tuple[int, int]] = []
    for run in _BOXES_AND_BRACES.finditer(text):
        position, end = run.span()
        if text[position] != "}":
            open_.append((0, end - position) if text[position] == "{" else (end, 1))
            continue
        while open_ and position < end:
            start, count = open_.pop()
            closed = min(count, end - position)
            if closed < count:
                open_.append((start, count - closed))
            elif start and (first is None or start < first[0]):
                first = start, position
            position += closed
            if first and not open_:
                return first
    return first


def _first_tag(text: str) -> tuple[int, int] | None:
    """Return where the content of the first complete tag begins and ends."""
    match = _TAG.search(text)
    return None if match is None else match.span(1)


_FENCE = re.compile(r"([ \t]*)(`{3,}(?=[^`]*$)|~{3,})(.*)")


def fenced_code(text: str, *languages: str) -> str | None:
    """Return the last complete fenced block, in one of ``languages`` if any are named; ``None`` if there is none.

    A fence is three or more backticks or tildes, at the start of a line or indented. At least as many of the same character
    close it, indented at most three spaces deeper. The lines inside lose the indentation of the opening. Blocks in other
    languages are skipped. The language is the first word after the fence.
    """
    last: str | None = None
    opening: tuple[str, str, str] | None = None
    block: list[str] = []
    for written in text.split("\n"):
        line = written.removesuffix("\r")
        fence = _FENCE.fullmatch(line)
        if opening is None:
            if fence is not None:
                opening, block = (fence[1], fence[2], fence[3]), []
            continue
        indent, mark, info = opening
        if (
            fence is not None
            and fence[2].startswith(mark)
            and not fence[3].strip()
            and len(fence[1].expandtabs(4)) <= len(indent.expandtabs(4)) + 3
        ):
            language = (info.split() or [""])[0].lower()
            if not languages or language in languages:
                last = "\n".join(block)
            opening = None
        else:
            block.append(line[_common(line, indent) :])
    return last


def _common(line: str, indent: str) -> int:
    """Return how many characters of ``indent`` the line begins with."""
    return next((width for width, (ours, theirs) in enumerate(zip(line, indent, strict=False)) if ours != theirs), len(indent))
