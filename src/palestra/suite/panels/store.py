"""The files of the panels: reading them, writing them, and comparing them with the environments of this machine."""

import difflib
from functools import cache
from pathlib import Path

import msgspec

from palestra.authoring.panels import PanelTask
from palestra.errors import UsageError
from palestra.foundation.encoding import decode_json, encode_json
from palestra.foundation.references import resolve
from palestra.suite.panels.catalog import PANELS, Rule
from palestra.suite.panels.frozen import FrozenPanel, FrozenTask, freeze, package_versions_of

__all__ = ["FILES", "differences", "list_panels", "load_panel", "panel_from_rules", "panel_json"]


FILES = Path(__file__).parent / "files"
"""Where the committed files are."""


class _File(msgspec.Struct, frozen=True):
    """The content of ``files/NAME.json``."""

    name: str
    description: str
    sha256: str
    packages: dict[str, str]
    entries: tuple[FrozenTask, ...]


def list_panels() -> list[str]:
    """Return the names of all panels, sorted."""
    return sorted(PANELS)


@cache
def load_panel(name: str) -> FrozenPanel:
    """Return the panel ``name`` from its committed file. Needs none of the packages that its environments need.

    Raises:
        UsageError: There is no such panel, or its file was edited by hand.
    """
    _rule(name)
    file = FILES / f"{name}.json"
    if not file.is_file():
        raise UsageError(f'the panel "{name}" has no file yet: python -m palestra.suite.panels {name}')
    found = decode_json(file.read_bytes(), _File)
    panel = FrozenPanel(found.name, found.description, found.entries, found.packages)
    if panel.sha256 != found.sha256 or panel.name != name:
        raise UsageError(f'the file of the panel "{name}" does not match its own hash: python -m palestra.suite.panels {name}')
    return panel


def panel_from_rules(name: str) -> FrozenPanel:
    """Make the panel ``name`` from its rules: list its tasks, start each of them once, and hash what it shows."""
    rule = _rule(name)
    entries = tuple(freeze(_listed(rule)))
    return FrozenPanel(name, rule.description, entries, package_versions_of(entry.task.env for entry in entries))


def panel_json(panel: FrozenPanel) -> bytes:
    """Return the content of the panel's file: one line per task, so that a change shows in a diff."""
    about = {"name": panel.name, "description": panel.description, "sha256": panel.sha256, "packages": panel.packages}
    head = encode_json(about)[1:-1]
    lines = b",\n".join(encode_json(_plain(entry)) for entry in panel.entries)
    return b"{" + head + b',"entries":[\n' + lines + b"\n]}\n"


def differences(name: str, every: int = 1) -> list[str]:
    """Compare the committed file with the rules and with the environments of this machine; an empty list means no difference.

    Args:
        name: The panel.
        every: Start only each ``every``-th task. The names of the tasks are always compared.
    """
    panel, listed = load_panel(name), _listed(_rule(name))
    kept = [PanelTask(entry.task, entry.group) for entry in panel.entries]
    if kept != listed:
        first = next((place for place, pair in enumerate(zip(kept, listed, strict=False)) if pair[0] != pair[1]), "the end")
        return [f"the rules list {len(listed)} tasks and the file {len(kept)}; they differ first at {first}"]
    chosen = panel.entries[::every]
    found = freeze(PanelTask(entry.task, entry.group) for entry in chosen)
    return [
        f"{was.task} begins with another observation"
        for was, now in zip(chosen, found, strict=True)
        if was.sha256 != now.sha256
    ]


def _plain(entry: FrozenTask) -> dict[str, object]:
    """The entry as JSON, without the fields of its task that have their default value."""
    task = {name: value for name, value in msgspec.structs.asdict(entry.task).items() if value not in (None, {}, "train")}
    return {**msgspec.structs.asdict(entry), "task": task}


def _listed(rule: Rule) -> list[PanelTask]:
    return [task for function in rule.functions for task in resolve(function)()]


def _rule(name: str) -> Rule:
    if name in PANELS:
        return PANELS[name]
    near = difflib.get_close_matches(name, PANELS, 1)
    hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(list_panels()) or 'none'}"
    raise UsageError(f'there is no panel "{name}": {hint}')
