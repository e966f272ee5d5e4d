"""A lint for plain English: words and patterns that readers stumbled over, in pages and in the texts of the source.

    python scripts/english.py                  # print every place, file by file
    python scripts/english.py src/palestra/cli # only below these paths

The script reads every Markdown page, and in ``src`` every docstring, string and comment. Code blocks and inline code are
skipped. It gives advice: no test runs it.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

_UNITS = (
    "second|minute|hour|day|step|turn|token|episode|task|group|epoch|million|thousand|call|request|worker|process|machine"
    "|node|move|game|update|frame|message|sample|line|session|run|box|core|GPU|card|environment|player|try|connection|family"
)
_COUNTED = (
    "tokens|episodes|steps|turns|requests|bytes|times|calls|updates|dollars|seconds|milliseconds|ms|µs|s|KB|MB|GB|kB|MiB|GiB"
    "|characters|frames|tasks|games|moves|programs|jobs|samples|words|messages|groups|lines|points|actions|processes|sessions"
    "|environments|tries|rollouts|trajectories|answers|attempts|once|twice|cents|FLOPs|flops|operations|passes|questions"
)


_GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*)"
"""What may stand between two words: blanks, or the end of a line, but not the end of a paragraph."""


class Rule(NamedTuple):
    """A pattern that the pages and texts avoid."""

    pattern: re.Pattern[str]
    instead: str


def _rule(pattern: str, instead: str) -> Rule:
    return Rule(re.compile(pattern.replace(" ", _GAP), re.IGNORECASE), instead)


RULES = (
    _rule(r"\b(?:somebody|whoever|nobody|everybody)\b", "name the subject: the user, the caller, the server"),
    _rule(
        r"\b(?:is|are|was|were|be|been|being) told\b(?! apart)",
        "name what reports it and to whom; 'sees', 'receives', 'reports'",
    ),
    _rule(r"\b(?:is|are|was|were|be|been) said\b|\bsaid to be\b", "active voice: what reports, lists or prints it"),
    _rule(rf"\b(?:{_COUNTED}) an? (?:{_UNITS})\b", "'per': tokens per second"),
    _rule(rf"\d(?:%| per cent)? an? (?:{_UNITS})\b", "'per': 5 per step"),
    _rule(r"\b(?:go|goes|going|gone|went) on\b(?! (?:the|a|an|to)\b)", "'resumes' or 'continues'"),
    _rule(r"\bwhether (?:it|one|they) (?:is|are) here\b", "'whether it is installed'"),
    _rule(r"\b(?:let|lets|letting) go\b|\bis let\b|\bare let\b", "'closes', 'releases', 'is allowed to'"),
    _rule(r"\bfor want of\b|\bfor lack of\b", "'because … is missing'"),
    _rule(r"\bhow dear\b|\bthe dearest\b|\bdearer\b", "'expensive', 'cost'"),
    _rule(r"\bthe very \w+", "'the same', 'exactly these', or nothing"),
    _rule(r"\b(?:behind the curtain|in either colou?r|hold(?:s|ing)? everybody up)\b", "say it plainly"),
    _rule(r"\b(?:is|are|was|were) gone through\b", "'passes over'"),
    _rule(r"\b(?:learnt|spelt|leant)\b", "American spelling: 'learned'"),
    _rule(r"\b(?:speaks?|spoke) for\b", "'represents', 'renews'"),
    _rule(r"\b(?:ere|thereof|therein|thereby|whereof|hitherto|aught|naught)\b", "a word of today"),
    _rule(r"\bthose who\b|\bhe who\b|\bto whom\b|\bfor whom\b", "name the subject"),
    _rule(r"(?:[.;:!] |\A)who (?:[a-z]+s|has|have|had|may|can|must|wants?) [^?]{3,80}?[.,]", "name the subject, not 'Who …'"),
    _rule(r"\bin vain\b", "'without success'"),
    _rule(r"\b(?:of|by|on) (?:its|their|his|her|our|your|one's) own accord\b", "'itself', 'without being asked'"),
    _rule(r"\bso many\b(?! (?:that|as)\b)|\bso much\b(?! (?:that|as|for)\b)", "name the number or the limit"),
)


class Offender(NamedTuple):
    """A place in a text that breaks a rule."""

    file: str
    line: int
    words: str
    instead: str


class Text(NamedTuple):
    """A piece of prose and the line of the file on which it starts."""

    text: str
    line: int


def offenders(file: Path) -> list[Offender]:
    """Every offender in ``file``, in order."""
    name = file.relative_to(ROOT).as_posix()
    texts = _of_python(file.read_text()) if file.suffix == ".py" else _of_page(file.read_text())
    found = [Offender(name, line, words, instead) for text in texts for line, words, instead in _in_text(text)]
    return sorted(found, key=lambda one: one.line)


def _in_text(piece: Text) -> Iterator[tuple[int, str, str]]:
    for rule in RULES:
        for match in rule.pattern.finditer(piece.text):
            yield piece.line + piece.text.count("\n", 0, match.start()), " ".join(match[0].split()), rule.instead


def _of_page(source: str) -> Iterator[Text]:
    """The prose of a Markdown page; blanks stand for code, so that lines keep their numbers."""
    without_blocks = re.sub(
        r"^( *)(```|~~~~).*?^\1\2", lambda match: "\n" * match[0].count("\n"), source, flags=re.DOTALL | re.MULTILINE
    )
    yield Text(re.sub(r"`[^`\n]*`", lambda match: "x" * len(match[0]), without_blocks), 1)


def _of_python(source: str) -> Iterator[Text]:
    """Docstrings, strings and comments."""
    tree = ast.parse(source)
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield Text("".join(map(str, parts)), node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield Text(re.sub(r"``[^`]*``", lambda match: "x" * len(match[0]), node.value), node.lineno)
    yield from _comments(source)


def _comments(source: str) -> Iterator[Text]:
    """Comments on consecutive lines are one text."""
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield Text("\n".join(block), last - len(block) + 1)
            block = []
        block.append(token.string.lstrip("# "))
        last = token.start[0]
    if block:
        yield Text("\n".join(block), last - len(block) + 1)


def files(below: Iterable[Path] = ()) -> list[Path]:
    """Every file that the lint reads, in order; only those below ``below``, if it names any."""
    every = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")])
    wanted = [path.resolve() for path in below]
    return [file for file in every if not wanted or any(file.is_relative_to(path) for path in wanted)]


def main() -> None:
    """Print the places."""
    places = [offender for file in files(map(Path, sys.argv[1:])) for offender in offenders(file)]
    for offender in places:
        print(f"{offender.file}:{offender.line}: '{offender.words}' → {offender.instead}")
    print(f"{len(places)} places in {len({offender.file for offender in places})} files")


if __name__ == "__main__":
    main()
