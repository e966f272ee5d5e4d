"""Families about text: questions about words, and short scripts that transform their input."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from palestra.envs.terminal.grading import AtMost, Check, Lines, Prints
from palestra.envs.terminal.scene import Scene, draw, sample, script, text_file

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
    most = int(rng.integers(3, 9))
    counts = Counter(word for line in lines for word in line.split())
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
    lines = [line.capitalize() if rng.random() < 0.3 else line for line in lines]
    goal = (
        f"Find the {most} most frequent words of notes.txt, in lower case (upper and lower case count as the same word). "
        "Write them to answer.txt, one per line as 'COUNT WORD', the most frequent first; equal counts in alphabetical order."
    )
    solve = (
        "tr 'A-Z ' 'a-z\\n' < notes.txt | sort | uniq -c | awk '{print $1, $2}' | sort -k1,1nr -k2,2 "
        f"| head -n {most} > answer.txt"
    )
    expected = [f"{count} {word}" for word, count in ranked]
    return Scene(goal, [text_file("notes.txt", "\n".join(lines) + "\n")], [Lines("answer.txt", expected)], [solve])


def _join_files(rng: np.random.Generator) -> Scene:
    people = sample(rng, WORDS, int(rng.integers(30, 60)))
    cities = sample(rng, WORDS, 8)
    numbers = rng.permutation(9000)[: len(people)] + 1000
    ids = [f"u{number}" for number in numbers.tolist()]
    homes = [draw(rng, cities) for _ in people]
    orders = [(draw(rng, ids), int(rng.integers(1, 500))) for _ in range(int(rng.integers(150, 400)))]
    totals: Counter[str] = Counter()
    for who, amount in orders:
        totals[homes[ids.index(who)]] += amount
    expected = [f"{city} {total}" for city, total in sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))]
    users = "".join(f"{ident}\t{name}\t{city}\n" for ident, name, city in zip(ids, people, homes, strict=True))
    goal = (
        "users.tsv has the columns id, name and city; orders.txt has lines 'id amount'. Write the total amount of each city to "
        "answer.txt, one per line as 'CITY TOTAL', the largest total first; equal totals in alphabetical order."
    )
    solve = (
        "awk 'NR==FNR{c[$1]=$3;next}{t[c[$1]]+=$2}END{for(k in t)print k,t[k]}' FS='\\t' users.tsv FS=' ' orders.txt "
        "| sort -k2,2nr -k1,1 > answer.txt"
    )
    files = [text_file("users.tsv", users), text_file("orders.txt", "".join(f"{who} {amount}\n" for who, amount in orders))]
    return Scene(goal, files, [Lines("answer.txt", expected)], [solve])


# ------------------------------------------------------------------------------------------------------------------- golf


class _Hole(NamedTuple):
    """One problem of shell golf."""

    goal: str
    solution: str
    answer: Callable[[list[str]], list[str]]


def _holes(rng: np.random.Generator) -> list[_Hole]:
    n = int(rng.integers(2, 7))
    word = draw(rng, WORDS)
    return [
        _Hole(f"print every line that contains '{word}'", f"grep {word}", lambda ls: [one for one in ls if word in one]),
        _Hole(f"print the first {n} lines", f"sed {n}q", lambda ls: ls[:n]),
        _Hole(f"print every line from line {n} on", f"tail -n+{n}", lambda ls: ls[n - 1 :]),
        _Hole("print the lines in reverse order", "tac", lambda ls: ls[::-1]),
        _Hole("print the number of lines", "wc -l", lambda ls: [str(len(ls))]),
        _Hole("print the different lines, sorted", "sort -u", lambda ls: sorted(set(ls))),
        _Hole("print each line with its characters reversed", "rev", lambda ls: [one[::-1] for one in ls]),
        _Hole(f"print only the first {n} characters of each line", f"cut -c-{n}", lambda ls: [one[:n] for one in ls]),
        _Hole(f"print every {n}th line: {n}, {2 * n} and so on", f"sed -n 0~{n}p", lambda ls: ls[n - 1 :: n]),
        _Hole("print the first word of each line", "cut -d' ' -f1", lambda ls: [one.split(" ")[0] for one in ls]),
        _Hole("print each line in upper case", "tr a-z A-Z", lambda ls: [one.upper() for one in ls]),
        _Hole("print the longest line; of several, the first", _LONGEST_LINE, lambda ls: [max(ls, key=len)] if ls else []),
        _Hole(
            f"print the lines that occur at least {n - 1 or 1} times, each once, sorted",
            f"sort|uniq -c|awk '$1>{(n - 1 or 1) - 1}{{$1=\"\";print substr($0,2)}}'",
            lambda ls: sorted(one for one, count in Counter(ls).items() if count >= (n - 1 or 1)),
        ),
        _Hole(
            "print the total number of words of all lines",
            "wc -w",
            lambda ls: [str(sum(len(one.split()) for one in ls))],
        ),
    ]


_LONGEST_LINE = "awk 'length>m{m=length;l=$0}END{print l}'"


def golf(rng: np.random.Generator, level: int) -> Scene:
    """Write a script of at most a given number of bytes."""
    hole = draw(rng, _holes(rng))
    limit = len(hole.solution) + (40, 12, 2)[level]
    inputs = [_golf_input(rng) for _ in range(6)]
    goal = (
        f"Write a shell script golf.sh of at most {limit} bytes (a newline at the end does not count). It reads lines from "
        f"its standard input and must {hole.goal}. It is run as `bash golf.sh` on inputs that you do not see; example.txt is "
        "one of the same kind."
    )

    checks: list[Check] = [AtMost("golf.sh", limit)]
    for lines in inputs[1:]:
        extra = {"in.txt": _joined(lines)}
        checks.append(Prints("bash golf.sh < in.txt", hole.answer(lines) or [""], "lines", ["golf.sh"], extra))
    return Scene(goal, [text_file("example.txt", _joined(inputs[0]))], checks, [_written("golf.sh", hole.solution)])


def _golf_input(rng: np.random.Generator) -> list[str]:
    words = sample(rng, WORDS, 12)
    lines = [" ".join(sample(rng, words, int(rng.integers(1, 5)))) for _ in range(int(rng.integers(12, 40)))]
    return [*lines, *(draw(rng, lines) for _ in range(12))]


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _written(path: str, text: str) -> str:
    return script(f"cat > {path} <<'END'", text, "END")
