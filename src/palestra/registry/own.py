"""The namespaces of Palestra's own environments, and the modules that register them.

Each module is what a stranger's entry point names: it calls ``register`` when it is imported, and imports no environment. The
registry reads this table before it looks for entry points. So the ids work from a checkout, finding them costs no search
through installed packages, and no other package can take their namespaces.
"""

from collections.abc import Mapping

__all__ = ["OWN"]

_BRIDGES = ("palestra.bridges.ids",)
_DATA = ("palestra.suite.data.ids",)

OWN: Mapping[str, tuple[str, ...]] = {
    "game": ("palestra.suite.catalog",),
    "rg": ("palestra.suite.reasoning.ids",),
    "math": _DATA,
    "code": _DATA,
    "logic": _DATA,
    "qa": _DATA,
    "eval": _DATA,
    "data": _DATA,
    "babyai": ("palestra.worlds.babyai.ids",),
    "craft": ("palestra.worlds.craft.ids",),
    "harbor": ("palestra.worlds.harbor.ids",),
    "house": ("palestra.worlds.house.ids",),
    "science": ("palestra.worlds.science.ids",),
    "search": ("palestra.worlds.deepsearch.ids",),
    "terminal": ("palestra.worlds.terminal.ids",),
    "text": ("palestra.worlds.textworld.ids",),
    "tools": ("palestra.worlds.agentdojo.ids", "palestra.worlds.bfcl.ids", "palestra.worlds.desk.ids"),
    "web": ("palestra.worlds.web.miniwob.ids", "palestra.worlds.web.sites.ids"),
    "remote": ("palestra.registry.remote",),
    "browsergym": _BRIDGES,
    "gem": _BRIDGES,
    "gymnasium": _BRIDGES,
    "inspect": _BRIDGES,
    "openenv": _BRIDGES,
    "skyrl": _BRIDGES,
    "textarena": _BRIDGES,
    "verifiers": _BRIDGES,
}
"""Namespace, or scheme, → the modules that register it."""
