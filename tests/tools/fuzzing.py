"""Random and mutated inputs for everything that reads what a model or a box wrote."""

import random
import time
from collections.abc import Callable, Sequence

from palestra.grading import fenced_code, last_answer, last_boxed
from palestra.grading.answers import reduced
from palestra.grading.decoding import decode
from palestra.grading.text import exact_match, f1
from palestra.grading.values import BadValue, expression, same
from palestra.tools.forms import CallForm, find_calls

_TAGS = ["tool_call", "think", "python", "search", "answer", "tool_name", "arguments"]
_PIECES = [
    *(f"<{end}{tag}>" for tag in _TAGS for end in ("", "/")),
    *('{"name": "f", "arguments": {"a": 1}}', "```python\n", "\n```", "\\boxed{", "\\frac{1}{2}", "1,234.5", "null", "true"),
    *('{"int":"ff"}', '{"str":"c3a9"}', '{"dict":[[null,null]]}', '{"tuple":[', "x" * 50, "9" * 50),
    *'{}"\\[]:,\x00\ud800é漢 \n',
]


def _text(chance: random.Random) -> str:
    return "".join(chance.choice(_PIECES) for _ in range(chance.randrange(24)))


def _bytes(chance: random.Random) -> bytes:
    data = bytearray(_text(chance).encode("utf-8", "surrogatepass"))
    for _ in range(chance.randrange(4)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _decode(data: bytes) -> None:
    try:
        tree = decode(data)
    except BadValue:
        return
    assert same(tree, tree)
    expression(tree)


_FORMS: Sequence[CallForm] = tuple(CallForm)
TARGETS: dict[str, Callable[[random.Random], object]] = {
    "call parser": lambda chance: find_calls(_text(chance), _FORMS),
    "boxed": lambda chance: last_boxed(_text(chance)),
    "answer tag": lambda chance: last_answer(_text(chance)),
    "fenced code": lambda chance: fenced_code(_text(chance), "python"),
    "value decoder": lambda chance: _decode(_bytes(chance)),
    "quick maths": lambda chance: reduced(_text(chance), _text(chance)),
    "exact match": lambda chance: exact_match(_text(chance), _text(chance)),
    "f1": lambda chance: f1(_text(chance), [_text(chance)]),
}


def fuzz(inputs: int, seed: int = 0) -> float:
    """Give each target its share of ``inputs``; the longest any of them took, in seconds of processor time."""
    worst = 0.0
    for name, target in TARGETS.items():
        chance = random.Random(seed)
        slowest = 0.0
        for _ in range(inputs // len(TARGETS)):
            began = time.thread_time()
            target(chance)
            slowest = max(slowest, time.thread_time() - began)
        print(f"  {name}: {inputs // len(TARGETS)} inputs, 0 crashes, slowest {slowest * 1e3:.2f} ms", flush=True)
        worst = max(worst, slowest)
    print(f"fuzzing: {inputs} inputs, 0 crashes, slowest {worst * 1e3:.2f} ms (target: none above 100 ms)")
    return worst
