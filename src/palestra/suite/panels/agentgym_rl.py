"""Parts of the panel ``agentgym-rl`` that no world lists itself: as many tasks as in the paper, chosen by our own rules."""

from palestra.authoring.panels import PanelTask
from palestra.trajectory import Task

__all__ = ["search_tasks"]

_FIRST_SEED = 2_000_000
_SEARCH = {"invented": {2: 50, 3: 50, 4: 50, 6: 100}, "facts": {2: 50, 3: 50, 4: 50}}
"""World → hops → tasks: 400 in all, as in the paper, which has 100 questions of Musique and 50 of each other data set. The data
sets themselves are not part of Palestra."""


def search_tasks() -> list[PanelTask]:
    """Questions over invented worlds and over real facts, by the number of hops."""
    return [
        PanelTask(
            Task(f"search:{world}-{hops}hop", _FIRST_SEED + place, split="test"), f"Search/{world.capitalize()}, {hops} hops"
        )
        for world, numbers in _SEARCH.items()
        for hops, count in numbers.items()
        for place in range(count)
    ]
