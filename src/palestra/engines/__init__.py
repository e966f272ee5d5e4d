"""Who samples tokens. Each engine is imported by its module, so that none drags in what another needs.

``scripted`` a function instead of a model · ``hf`` transformers in this process · ``vllm`` and ``sglang`` servers over HTTP
"""

from palestra.engines.scripted import ScriptedEngine

__all__ = ["ScriptedEngine"]
