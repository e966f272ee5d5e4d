"""The ids of deep search: ``search:invented-2hop``, ``search:facts-2hop``, and each with AgentGym's rule (``-agentgym``)."""

from palestra.registry import Need, register
from palestra.worlds.deepsearch.wheels import FACTS

__all__ = ["HOPS", "TURNS"]

TURNS = 30
"""AgentGym-RL's turn limit in evaluation."""

HOPS = {"invented": (2, 3, 4, 6), "facts": (2, 3, 4)}
_ABOUT = {
    "invented": "Questions about an invented world, answered by searching its documents.",
    "facts": "Questions about real places, airports and elements, answered by searching documents about them.",
}
_TANTIVY = Need(label="tantivy", module="tantivy", extra="search")
_NEEDS = {"invented": (_TANTIVY,), "facts": (_TANTIVY, FACTS.need())}


for world, numbers in HOPS.items():
    for hops in numbers:
        for rule, retry in (("", False), ("-agentgym", True)):
            register(
                f"search:{world}-{hops}hop{rule}",
                "palestra.worlds.deepsearch.env:DeepSearch",
                kwargs={"world": world, "hops": hops, "retry": retry},
                max_turns=TURNS,
                tags={"search", "world", "multi-turn"},
                needs=_NEEDS[world],
                description=_ABOUT[world],
            )
