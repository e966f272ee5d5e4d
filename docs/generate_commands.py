"""Writes the reference of the command line from the help texts: ``python docs/generate_commands.py``."""

import inspect
import sys
from pathlib import Path
from typing import Any

import typer.main

from palestra.cli.app import ENTRIES, app

PAGE = Path(__file__).parent / "reference" / "command-line.md"
HEAD = """# Command line

`palestra COMMAND --help` prints what this page says about a command. `python docs/generate_commands.py` writes the page from
the same texts, and a test compares the two.

## Exit codes

| code | meaning |
|---|---|
| 0 | The command did what you asked. |
| 1 | The command ran and the answer is no: a check failed, an audit found a gap, nothing was scored, a server is down. |
| 2 | The command cannot run as typed: an unknown id or option, a path that it cannot read or write, a missing extra. |
| 3 | An unexpected error: a bug in Palestra or in the code that it ran. The last line names the file with the traceback. |
| 130 | Ctrl-C. The last line says how to resume. |

If you make a mistake, the command prints one sentence that says what was wrong and what to type. In that case
nothing was written: a command checks its options, such as the path of `-o`, before it begins. `PALESTRA_TRACEBACK=1` prints the
traceback of every error.
"""
GUIDES = {
    "play": "tutorials/01-play.md",
    "demo": "tutorials/01-play.md",
    "eval": "how-to/evaluate.md",
    "compare": "how-to/evaluate.md",
    "regrade": "how-to/evaluate.md#score-a-run-again",
    "rollout": "tutorials/03-run-many-episodes.md#from-the-command-line",
    "probe": "how-to/probe.md",
    "plan": "design/scale.md",
    "train": "how-to/train.md",
    "plot": "how-to/train.md#look-at-a-run",
    "view": "how-to/view-runs.md",
    "export": "how-to/exchange.md",
    "import": "how-to/exchange.md",
    "check": "how-to/check-an-environment.md",
    "serve": "how-to/serve-environments.md",
    "model": "how-to/sample-from-a-model.md",
    "model export": "how-to/train.md#take-the-model-out",
    "index": "how-to/search.md",
}
"""The page that explains a command, below ``docs``."""


def commands() -> dict[str, Any]:
    """Every command by its full name, groups opened, in the order in which `palestra --help` lists them."""
    named: dict[str, Any] = {}
    top = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for entry in ENTRIES:
        command = top[entry.name]
        inner = getattr(command, "commands", None)
        if inner is None:
            named[entry.name] = command
        else:
            named |= {f"{entry.name} {name}": inner[name] for name in inner}
    return named


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def summary(command: Any) -> str:
    return inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")


def synopsis(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.required]
    words = [*map(argument_name, arguments), *(f"{max(option.opts, key=len)} …" for option in options)]
    return " ".join(["palestra", name, *words, "[OPTIONS]"])


def argument_name(param: Any) -> str:
    name = (param.metavar or param.name.upper()).strip("[].") + ("…" if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def row(param: Any) -> str:
    """One row of a table: what to type, the default, and what it does."""
    if param.param_type_name == "argument":
        typed, default = f"`{argument_name(param)}`", ""
    else:
        names = sorted([*param.opts, *param.secondary_opts], key=len)
        names[-1] += f" {param.metavar}" if param.metavar else ""
        typed, default = ", ".join(f"`{name}`" for name in names), shown(param)
    needed = "**required**" if param.required else default
    return f"| {cell(typed)} | {cell(needed)} | {cell(param.help or '')} |"


def shown(param: Any) -> str:
    value = param.default() if callable(param.default) else param.default
    if value is None or value is False or value in ([], (), ""):
        return ""
    if value is True:
        return "on"
    return f"`{' '.join(map(str, value)) if isinstance(value, list | tuple) else value}`"


def section(name: str, command: Any) -> str:
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    guide = GUIDES.get(name, GUIDES.get(name.split()[0]))
    parts = [f"## palestra {name}", "\n\n".join(paragraphs), f"```text\n{synopsis(name, command)}\n```"]
    rows = [row(param) for param in command.params if param.name != "help" and not param.hidden]
    if rows:
        parts.append("\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows]))
    if guide:
        parts.append(f"Guide: [{guide.partition('#')[0].rpartition('/')[2].removesuffix('.md')}](../{guide}).")
    return "\n\n".join(parts)


def page() -> str:
    named = commands()
    panels = {entry.name: entry.panel for entry in ENTRIES}
    overview = [
        f"| {panels[name.split()[0]]} | [`palestra {name}`](#palestra-{name.replace(' ', '-')}) | {cell(summary(command))} |"
        for name, command in named.items()
    ]
    table = "\n".join(["## All commands", "", "| group | command | what it does |", "|---|---|---|", *overview])
    return "\n\n".join([HEAD.rstrip(), table, *(section(name, command) for name, command in named.items())]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
