"""Engines sample tokens. Import each engine from its own module, so that none loads what only another one needs.

``hf`` runs transformers in this process. ``vllm`` and ``sglang`` talk to servers over HTTP.
``palestra.testing.scripted`` has an engine that samples from a script, for tests.
"""
