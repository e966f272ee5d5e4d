"""Engines sample tokens. Import each engine from its own module, so that none loads what only another one needs.

``hf`` runs transformers in this process. ``vllm`` and ``sglang`` talk to servers over HTTP. ``calls`` makes an engine of a
function that samples, such as the one that another trainer offers.
``palestra.testing.scripted`` has an engine that samples from a script, for tests.
"""
