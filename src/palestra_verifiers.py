"""The module that verifiers looks for under the id ``palestra-verifiers``: see ``palestra.integrations.verifiers``."""

from palestra.integrations.verifiers import plugin

__all__ = ["PalestraEnv", "PalestraHarness", "PalestraTaskset"]

PalestraTaskset, PalestraEnv, PalestraHarness = plugin()
