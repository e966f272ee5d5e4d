"""The module that verifiers looks for under the id ``palestra-verifiers``: see ``palestra.bridges.verifiers``."""

from palestra.bridges.verifiers import plugin

__all__ = ["PalestraEnv", "PalestraHarness", "PalestraTaskset"]

PalestraTaskset, PalestraEnv, PalestraHarness = plugin()
