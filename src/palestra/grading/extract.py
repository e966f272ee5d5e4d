r"""Where the answer stands in what a model wrote.

Models are asked to put an answer into ``\boxed{…}`` and often write several; the last complete one counts. The scan is
linear and takes braces as they nest, so ``\boxed{\frac{1}{2}}`` is one answer and a megabyte of ``\boxed{`` costs nothing.
``<answer>…</answer>`` and fenced code are read by the same rule: the last complete one.
"""

__all__ = ["fenced_code", "last_answer", "last_boxed"]

_OPENING = "\\boxed{"


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete ``\boxed{…}``, stripped; ``None`` if there is none."""
    _, opening, rest = text.rpartition(_OPENING)
    content, closing, _ = rest.partition("}")
    if opening and closing and "{" not in content:
        return content.strip()  # what nearly every action looks like: closed, and nothing nests
    end = text.rfind("}")
    start = text.rfind(_OPENING, 0, end + 1)
    while start != -1:
        content_start = start + len(_OPENING)
        close = _closing_brace(text, content_start, end + 1)
        if close != -1:
            return text[content_start:close].strip()
        # Unbalanced from here on: everything before this opening may still hold a complete one, but not beyond it.
        end = start
        start = text.rfind(_OPENING, 0, start)
    return None


def _closing_brace(text: str, start: int, limit: int) -> int:
    """Where the brace opened just before ``start`` closes; -1 if not before ``limit``."""
    depth = 1
    while True:
        close = text.find("}", start, limit)
        if close == -1:
            return -1
        depth += text.count("{", start, close) - 1
        if depth == 0:
            return close
        start = close + 1


def last_answer(text: str) -> str | None:
    """The content of the last complete ``<answer>…</answer>``, stripped; ``None`` if there is none."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end != -1 else -1
    return None if start == -1 else text[start + len("<answer>") : end].strip()


def fenced_code(text: str, *languages: str) -> str | None:
    """The content of the last complete fenced block, of one of ``languages`` if any are named; ``None`` if there is none.

    A fence opens and closes at the start of a line. A block in another language is passed over, not read.
    """
    found: str | None = None
    opening: str | None = None
    block: list[str] = []
    for line in text.split("\n"):
        if not line.startswith("```"):
            block.append(line)
        elif opening is None:
            opening, block = line[3:].strip().lower(), []
        else:
            if not languages or opening in languages:
                found = "\n".join(block)
            opening, block = None, []
    return found
