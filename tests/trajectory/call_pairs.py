"""Texts with tool calls and code blocks, and what is read from them."""

import json
from typing import Any

CLOSED = "</tool_call>"


def _call(body: str) -> str:
    return f"<tool_call>{body}{CLOSED}"


def _plain(arguments: dict[str, Any]) -> str:
    return json.dumps({"name": "f", "arguments": arguments})


_TEXTS = [
    CLOSED,
    f"a{CLOSED}b",
    f"{CLOSED}{CLOSED}",
    f'"{CLOSED}"',
    f"\\{CLOSED}",
    f'\\"{CLOSED}',
    f"<tool_call>{CLOSED}",
    f"<tool_call>{{}}{CLOSED}",
    f"\n{CLOSED}\n",
    f"{{{CLOSED}}}",
    "<tool_call>",
    "</think>",
    "'",
    "é</tool_call>漢",
]
READ: list[tuple[str, dict[str, Any]]] = [(_call(_plain({"a": text})), {"a": text}) for text in _TEXTS]
"""A text with one call of ``f`` → its arguments."""
READ += [(_call(f"\n{_plain({'a': text})}\n"), {"a": text}) for text in _TEXTS]
READ += [(_call(_plain({text: [text, {"b": text}]})), {text: [text, {"b": text}]}) for text in _TEXTS]
READ += [(f"I call.\n{_call(_plain({'a': text}))} Done.", {"a": text}) for text in _TEXTS]
READ += [(_call(json.dumps({"arguments": {"a": text}, "name": "f"})), {"a": text}) for text in _TEXTS]
READ += [(_call(json.dumps({"name": "f", "parameters": json.dumps({"a": text})})), {"a": text}) for text in _TEXTS]

REFUSED: list[str] = [
    _call(body)
    for body in [
        "",
        "f",
        "{}",
        "[]",
        "null",
        '"f"',
        '{"name": "f"',
        '{"name": "f", "arguments": []}',
        '{"name": "f", "arguments": 1}',
        '{"name": 5, "arguments": {}}',
        '{"name": "f", "args": {}}',
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {"a": 1,}}',
        "{'name': 'f', 'arguments': {}}",
        '{"name": "f", "arguments": {"a": "open}}',
        '{"name": "f", "arguments": "{"}',
        '[{"name": "f", "arguments": {}}]',
        '{"name": "f"}{"name": "g"}',
        f'{{"name": "f", "args": {{"a": "{CLOSED}"}}}}',
        f'{{"name": 5, "arguments": {{"a": "{CLOSED}"}}}}',
        f'{{"arguments": {{"a": "{CLOSED}"}}}}',
    ]
]
"""Texts with one attempt at a call that cannot be read."""

FENCED: list[tuple[str, str]] = [
    ("```python\na\n```", "a"),
    ("```py\na\n```", "a"),
    ("```Python\na\n```", "a"),
    ("```python title=x\na\n```", "a"),
    ("``` python\na\n```", "a"),
    ("```\na\n```", "a"),
    ("   ```python\n   a\n     b\n   ```", "a\n  b"),
    ("   ```python\na\n   ```", "a"),
    ("1. Do:\n    ```python\n    a\n    ```", "a"),
    ("- x\n\t```python\n\ta\n\t```", "a"),
    ("~~~python\na\n~~~", "a"),
    ("~~~~py\na\n~~~\nb\n~~~~", "a\n~~~\nb"),
    ("````python\na\n```\nb\n````", "a\n```\nb"),
    ("````python\na\n`````", "a"),
    ("~~~python\na\n```\nb\n~~~", "a\n```\nb"),
    ("```python\na\n~~~\nb\n```", "a\n~~~\nb"),
    ("```python\na\n```   \n", "a"),
    ("```python\na\n  ```", "a"),
    ("```python\r\na\r\nb\r\n```\r\n", "a\nb"),
    ("```python\nold\n```\n```python\nnew\n```", "new"),
    ("```text\nx\n```\n```python\na\n```\n```json\n{}\n```", "a"),
    ("```python\nx = '''\n    ```\n'''\n```", "x = '''\n    ```\n'''"),
    ("```python\n\n```", ""),
    ("```python\na\n\n  b\n```", "a\n\n  b"),
]
"""A text → the Python in its last block."""
UNFENCED: list[str] = [
    "a",
    "",
    "```python",
    "```python\na",
    "```python\na\n``",
    "``python\na\n``",
    "```rust\na\n```",
    "`````python\na\n```",
    "````python\na\n```",
    "~~~python\na\n```",
    "```python\na\n~~~",
    "~~python\na\n~~",
    "x ```python\na\n```",
    "```pythonic\na\n```",
    "```python\na\n     ```",
    "```python a`b\nx\n```",
    "```python\na\n```x",
]
"""Texts without a complete block of Python."""
