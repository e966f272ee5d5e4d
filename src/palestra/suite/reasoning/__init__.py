r"""Reasoning: every generator of reasoning-gym as ``rg:name``, one question and one answer per episode.

``ids`` lists the names without importing the library, which takes seconds. ``library`` imports it, makes it deterministic and
makes scoring safe. ``oracles`` finds answers that the library leaves out. ``question`` is the environment.
"""
