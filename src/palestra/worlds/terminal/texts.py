"""Families about text: questions about words, and short scripts that transform their input."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from palestra.worlds.terminal.asks import draw_ask
from palestra.worlds.terminal.grading import AtMost, Condition, Lines, Prints
from palestra.worlds.terminal.scene import Scene, draw, sample, script, text_file

__all__ = ["WORDS", "golf", "text"]

_ALL_WORDS = (
    "amber anchor apple arrow badge barrel basil beacon birch blanket bottle branch bridge bronze bucket cabin candle canvas "
    "carbon castle cedar chalk cherry circle clover cobalt comet copper coral cotton crane crystal dagger dancer delta desert "
    "diamond dragon eagle ember engine falcon feather fennel ferry finch flame forest fossil garden garnet ginger glacier "
    "granite hammer harbor hazel helmet heron honey indigo island ivory jacket jasper jungle kernel kettle ladder lantern "
    "lemon linen lotus magnet maple marble meadow mirror nickel nutmeg oasis olive onyx opal orchid otter paddle pebble "
    "pepper pigeon pillar planet plum prairie quartz quill rabbit raven ribbon river saddle saffron salmon sandal sapphire "
    "shadow silver spruce stable summit sunset table teapot temple thistle timber topaz tulip tunnel turtle valley velvet "
    "violet walnut whistle willow window winter yarrow zephyr zinc"
)
WORDS = tuple(_ALL_WORDS.split())


def text(rng: np.random.Generator, level: int) -> Scene:
    """Count lines with a word; rank words; join two files."""
    return (_count_lines, _rank_words, _join_files)[level](rng)


def _prose(rng: np.random.Generator, lines: int, words: Sequence[str]) -> list[str]:
    weights = rng.random(len(words)) ** 2 + 0.01
    weights /= weights.sum()
    return [" ".join(rng.choice(words, size=int(rng.integers(4, 10)), p=weights).tolist()) for _ in range(lines)]


def _count_lines(rng: np.random.Generator) -> Scene:
    words = sample(rng, WORDS, 25)
    lines = _prose(rng, int(rng.integers(60, 200)), words)
    wanted = words[0]
    lines = [line.replace(wanted, wanted + "s") if rng.random() < 0.2 else line for line in lines]
    count = sum(wanted in line.split() for line in lines)
    goal = (
        f"Count the lines of notes.txt that contain the whole word '{wanted}' ('{wanted}s' is another word). "
        "Write the number to answer.txt."
    )
    check = Lines("answer.txt", [str(count)])
    return Scene(
        goal, [text_file("notes.txt", "\n".join(lines) + "\n")], [check], [f"grep -cw {wanted} notes.txt > answer.txt"]
    )


def _rank_words(rng: np.random.Generator) -> Scene:
    lines = _prose(rng, int(rng.integers(150, 400)), sample(rng, WORDS, 40))
    most, letters, rare = int(rng.integers(2, 11)), int(rng.integers(5, 8)), bool(rng.integers(2))
    counts = Counter(word for line in lines for word in line.split() if len(word) >= letters)
    ranked = sorted(counts.items(), key=lambda pair: (pair[1] if rare else -pair[1], pair[0]))[:most]
    lines = [line.capitalize() if rng.random() < 0.3 else line for line in lines]
    way = "least" if rare else "most"
    goal = (
        f"Of the words of notes.txt that have at least {letters} letters, find the {most} {way} frequent ones, in lower case "
        "(upper and lower case count as the same word). Write them to answer.txt, one per line as 'COUNT WORD', the "
        f"{way} frequent first; equal counts in alphabetical order."
    )
    solve = (
        f"tr 'A-Z ' 'a-z\\n' < notes.txt | grep -E '.{{{letters}}}' | sort | uniq -c | awk '{{print $1, $2}}' "
        f"| sort -k1,1n{'' if rare else 'r'} -k2,2 | head -n {most} > answer.txt"
    )
    expected = [f"{count} {word}" for word, count in ranked]
    return Scene(goal, [text_file("notes.txt", "\n".join(lines) + "\n")], [Lines("answer.txt", expected)], [solve])


def _join_files(rng: np.random.Generator) -> Scene:
    people = sample(rng, WORDS, int(rng.integers(30, 60)))
    numbers = rng.permutation(9000)[: len(people)] + 1000
    columns = {name: sample(rng, WORDS, count) for name, count in (("city", 8), ("team", 5), ("language", 6))}
    users = {f"u{number}": {name: draw(rng, values) for name, values in columns.items()} for number in numbers.tolist()}
    orders = [(draw(rng, list(users)), int(rng.integers(1, 500))) for _ in range(int(rng.integers(150, 400)))]
    ask, column = draw_ask(rng, range(20, 300)), draw(rng, list(columns))
    expected = [f"{group} {value}" for group, value in ask.answer((users[who][column], amount) for who, amount in orders)]
    goal = (
        "users.tsv has the columns id, name, city, team and language; orders.txt has lines 'id amount'. Only orders with an "
        f"amount of at least {ask.least} count. For each {column} with such orders, write {ask.statistic.about} of these to "
        f"answer.txt, one per line as '{column.upper()} VALUE', the {ask.first} value first; equal values in alphabetical "
        "order."
    )
    solve = (
        f"awk 'NR==FNR{{c[$1]=${3 + list(columns).index(column)};next}}$2>={ask.least}{{k=c[$1];v=$2+0;{ask.statistic.awk}}}"
        "END{for(k in t)print k,t[k]}' FS='\\t' users.tsv FS=' ' orders.txt "
        f"| sort -k2,2{ask.sort_flag} -k1,1 > answer.txt"
    )
    rows = ["\t".join([ident, name, *users[ident].values()]) for ident, name in zip(users, people, strict=True)]
    files = [text_file("users.tsv", _joined(rows)), text_file("orders.txt", _joined([f"{who} {n}" for who, n in orders]))]
    return Scene(goal, files, [Lines("answer.txt", expected)], [solve])


# ------------------------------------------------------------------------------------------------------------------- golf


class _Hole(NamedTuple):
    """One problem of shell golf."""

    goal: str
    solution: str
    answer: Callable[[list[str]], list[str]]


def _holes(rng: np.random.Generator, word: str) -> list[_Hole]:
    """Return one hole of every kind. Each kind has a number, a letter or a word of the task in it."""
    n = int(rng.integers(2, 10))
    often = int(rng.integers(2, 4))
    x, y = sample(rng, "aeilnorst", 2)
    return [
        _Hole(f"print every line that contains '{word}'", f"grep {word}", lambda ls: [line for line in ls if word in line]),
        _Hole(f"print the first {n} lines", f"sed {n}q", lambda ls: ls[:n]),
        _Hole(f"print every line from line {n} on", f"tail -n+{n}", lambda ls: ls[n - 1 :]),
        _Hole(f"print the first {n} lines in reverse order", f"sed {n}q|tac", lambda ls: ls[:n][::-1]),
        _Hole(
            f"print the number of lines that contain the letter {x}",
            f"grep -c {x}",
            lambda ls: [str(sum(x in line for line in ls))],
        ),
        _Hole(
            f"print the different lines that contain the letter {x}, sorted",
            f"grep {x}|sort -u",
            lambda ls: sorted({line for line in ls if x in line}),
        ),
        _Hole(
            f"print the first {n} lines, each with its characters reversed",
            f"sed {n}q|rev",
            lambda ls: [line[::-1] for line in ls[:n]],
        ),
        _Hole(f"print only the first {n} characters of each line", f"cut -c-{n}", lambda ls: [line[:n] for line in ls]),
        _Hole(f"print every {n}th line: {n}, {2 * n} and so on", f"sed -n 0~{n}p", lambda ls: ls[n - 1 :: n]),
        _Hole(
            f"print of each line what comes before its first letter {x} (the whole line if it has none)",
            f"cut -d{x} -f1",
            lambda ls: [line.split(x)[0] for line in ls],
        ),
        _Hole(
            f"print each line with the letter {y} in place of every letter {x}",
            f"tr {x} {y}",
            lambda ls: [line.replace(x, y) for line in ls],
        ),
        _Hole(
            f"print the longest of the first {n} lines; of several, the first",
            f"sed {n}q|{_LONGEST_LINE}",
            lambda ls: [max(ls[:n], key=len)],
        ),
        _Hole(
            f"print the lines that contain the letter {x} and occur at least {often} times, each once, sorted",
            f"grep {x}|sort|uniq -c|awk '$1>{often - 1}{{$1=\"\";print substr($0,2)}}'",
            lambda ls: sorted(line for line, count in Counter(ls).items() if count >= often and x in line),
        ),
        _Hole(
            f"print the total number of words of the first {n} lines",
            f"sed {n}q|wc -w",
            lambda ls: [str(sum(len(line.split()) for line in ls[:n]))],
        ),
    ]


_LONGEST_LINE = "awk 'length>m{m=length;l=$0}END{print l}'"


def golf(rng: np.random.Generator, level: int) -> Scene:
    """Write a script of at most a given number of bytes."""
    word = draw(rng, WORDS)
    hole = draw(rng, _holes(rng, word))
    limit = len(hole.solution) + (40, 12, 2)[level]
    inputs = [_golf_input(rng, word) for _ in range(6)]
    goal = (
        f"Write a shell script golf.sh of at most {limit} bytes (a newline at the end does not count). It reads lines from "
        f"its standard input and must {hole.goal}. It is run as `bash golf.sh` on inputs that you do not see; example.txt is "
        "one of the same kind."
    )

    checks: list[Condition] = [AtMost("golf.sh", limit)]
    for lines in inputs[1:]:
        extra = {"in.txt": _joined(lines)}
        checks.append(Prints("bash golf.sh < in.txt", hole.answer(lines) or [""], "lines", ["golf.sh"], extra))
    return Scene(goal, [text_file("example.txt", _joined(inputs[0]))], checks, [_written("golf.sh", hole.solution)])


def _golf_input(rng: np.random.Generator, word: str) -> list[str]:
    words = [word, *sample(rng, WORDS, 11)]
    lines = [" ".join(sample(rng, words, int(rng.integers(1, 5)))) for _ in range(int(rng.integers(12, 40)))]
    return [*lines, *(draw(rng, lines) for _ in range(12))]


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _written(path: str, text: str) -> str:
    return script(f"cat > {path} <<'END'", text, "END")
