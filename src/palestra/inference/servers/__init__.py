"""Everything about inference servers: speak to them, start them, place them, give them weights, notice that they died.

``replica`` is one server as its client sees it. ``remote`` speaks to several, ``vllm`` and ``sglang`` in their dialects.
``launching`` starts servers beside a run, ``placed`` puts engines on the nodes of a Ray cluster. New weights reach servers by
``publishing`` (folders) or ``broadcasting`` (``collective`` is what both sides say), and ``served`` brings them every version.
``agreement`` notices servers that sample from other weights than the learner has.

To add a kind of server, subclass ``RemoteEngine`` (``remote``) as ``sglang`` does, write its function in
``inference/choice.py``, and name it in ``ENGINE`` and ``SERVERS`` of ``recipes/engine.py``.
"""
