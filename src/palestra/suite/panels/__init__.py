"""Named, frozen panels of tasks: ``palestra eval POLICY --panel NAME`` plays the same tasks on every machine and in every year.

A panel has two parts:

1. **A rule**: a function that lists the tasks. A world keeps its rules in ``palestra.worlds.<world>.panels``::

       from palestra.authoring.panels import PanelTask
       from palestra.trajectory import Task

       def by_depth() -> list[PanelTask]:
           return [PanelTask(Task("craft:minecraft-depth1", seed), "TextCraft/Depth 1") for seed in range(31)]

   A rule draws from no generator but its own, and never depends on the clock, on hash order or on the order of a folder. The
   second field is the task's column in the report's table: ``World/Column``, or empty. An entry in ``catalog.py`` names the
   panel, its description and its rules; a panel may join the rules of several worlds.

2. **A file**, ``files/NAME.json``, which is committed: the tasks in order, each with the hash of its first observation and its
   column, the panel's own hash over all of these, and the versions of the packages that the tasks depend on. ``python -m
   palestra.suite.panels NAME`` writes the file; with ``--check`` it compares the file with the rule and with the environments
   of this machine. An evaluation plays the file, so a rule that changes by mistake changes no panel. It compares what every
   episode shows first with the file, and ends if it is something else.

A world proves its panel in a test::

    from palestra.suite.panels import differences

    def test_the_panel_is_what_was_committed() -> None:
        assert differences("craft", every=10) == []
"""

from palestra.suite.panels.frozen import FrozenPanel, FrozenTask, first_observation_hash, freeze, start_all
from palestra.suite.panels.store import differences, list_panels, load_panel, panel_from_rules, panel_json

__all__ = [
    "FrozenPanel",
    "FrozenTask",
    "differences",
    "first_observation_hash",
    "freeze",
    "list_panels",
    "load_panel",
    "panel_from_rules",
    "panel_json",
    "start_all",
]
