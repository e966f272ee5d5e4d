"""Writes the reference of recipe keys from the structs that read them: ``python docs/generate_recipes.py``."""

import ast
import inspect
import sys
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

from palestra.foundation.references import Hook, resolve
from palestra.recipes.algorithms import HORIZON, HorizonConfig
from palestra.recipes.config import TrainConfig

PAGE = Path(__file__).parent / "reference" / "recipes.md"
HEAD = """# Recipe keys

A recipe is a TOML file; every key can be overridden on the command line by its dotted name
(`palestra train recipe.toml learner.learning_rate=1e-5 horizon=none`). `python docs/generate_recipes.py` writes this page from
the code, and a test compares the two. [Train a model](../how-to/train.md) shows how to use the keys.

A *part* is the short name of a built-in, your own object as `"module:name"`, or a table
`{use = "module:name", any_keyword = 1}`: [replace a part of training](../how-to/replace-a-part.md).
"""


def sentences(kind: type) -> dict[str, str]:
    """What stands under each field of a struct, in one line."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(str(after.value.value).split()).replace("``", "`").replace("|", "\\|")
    return found


def structs(kind: Any) -> list[type[msgspec.Struct]]:
    if typing.get_origin(kind) in (types.UnionType, typing.Union, typing.Annotated):
        return [one for option in typing.get_args(kind) for one in structs(option)]
    if typing.get_origin(kind) is dict:
        return structs(typing.get_args(kind)[1])
    return [kind] if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []


def shown(kind: Any) -> str:
    """A type, as a user would say it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        bounds = [f"{sign} {getattr(one, name)}" for one in arguments[1:] for name, sign in _BOUNDS if _has(one, name)]
        return " ".join([shown(arguments[0]), *bounds])
    if origin is typing.Literal:
        return " ".join(f"`{one}`" for one in arguments)
    if origin in (types.UnionType, typing.Union) and set(arguments) - {type(None)} == set(typing.get_args(Hook)):
        return "part"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(shown(one) for one in arguments if one is not type(None))
    if origin is dict:
        return f"table of {shown(arguments[1])}"
    if origin is tuple:
        return f"list of {shown(arguments[0])}"
    return "table" if structs(kind) else {str: "text"}.get(kind, getattr(kind, "__name__", str(kind)))


_BOUNDS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))


def _has(constraint: Any, name: str) -> bool:
    return getattr(constraint, name, None) is not None


def default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "**needed**"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return ""
    return "none" if value is None else f"`{msgspec.json.encode(value).decode()}`"


def tables(kind: type[msgspec.Struct], prefix: str = "", title: str = "At the top") -> list[str]:
    """A table for ``kind``, then the tables inside it."""
    said = sentences(kind)
    fields = msgspec.structs.fields(kind)
    doc = " ".join((kind.__doc__ or "").split()).replace("``", "`")
    lines = [f"## {title}", "", doc, "", "| key | value | default | |", "|---|---|---|---|"]
    lines += [f"| `{prefix}{f.encode_name}` | {shown(f.type)} | {default(f)} | {said.get(f.name, '')} |" for f in fields]
    pages = ["\n".join(lines)]
    for field in fields:
        name = f"{prefix}{field.encode_name}"
        inner = f"{name}.ID" if typing.get_origin(field.type) is dict else name
        for one in structs(field.type):
            pages += tables(one, f"{inner}.", f"`[{inner}]`")
    if kind is HorizonConfig:
        for use, schedule in HORIZON.builtins.items():
            pages += tables(resolve(schedule), f"{prefix}default.", f'`[{prefix}default]` with `use = "{use}"`')
    return pages


def page() -> str:
    seen: dict[str, None] = dict.fromkeys(tables(TrainConfig))
    return "\n\n".join([HEAD.rstrip(), *seen]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
