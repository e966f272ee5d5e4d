r"""Reasoning: every generator of reasoning-gym as ``rg:name``, one question and one answer an episode.

``ids`` lists the names without importing the library, which takes seconds. ``library`` is where it is imported, made
deterministic and made safe to score with. ``oracles`` finds the answers that it leaves out. ``question`` is the environment.
"""
