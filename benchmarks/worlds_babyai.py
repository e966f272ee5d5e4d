"""BabyAI at full size: the oracle, random and hostile actions, determinism, and the cost of a step over bare minigrid."""

from time import process_time
from typing import Any

from mishaps import mishap_rows
from rows import Row, interleaved
from tests.suite.same_everywhere import different_hashes

from palestra.adapters import Guarded
from palestra.checking.hostile import SHORT
from palestra.foundation.seeding import derive
from palestra.worlds.babyai.env import BabyAI
from palestra.worlds.babyai.levels import LEVELS, minigrid_id
from palestra.worlds.babyai.world import World

__all__ = ["rows"]

SOME = ("GoToLocal", "PickupLoc", "PutNextLocalS5N3", "UnlockLocal")
IDS = (*(f"babyai:{level}" for level in SOME), "babyai:GoToLocal-primitive", "babyai:panel", "babyai:panel-agentgym")
TEXTS = list(SHORT.values())


def rows(quick: bool) -> list[Row]:
    """The rows of this world."""
    levels, seeds, actions = (SOME, 3, 300) if quick else (tuple(LEVELS), 20, 10_000)
    solved = sum(all(solves(level, seed) for seed in range(seeds)) for level in levels)
    return [
        Row(f"levels that the oracle solves in {seeds} of {seeds} tasks", solved, f">= {len(levels) if quick else 86}"),
        *mishap_rows(["babyai:MiniBossLevel"], actions, hostile_text),
        Row("different sha256 of the same episodes", same_everywhere(quick), "<= 1"),
        Row("CPU of a primitive step without text, over bare minigrid", primitive_ratio(3 if quick else 15), "<= 1.3"),
        Row("CPU of a step with text and macro search, µs", step_cost(2 if quick else 10), "<= 500"),
    ]


def solves(level: str, seed: int) -> bool:
    env = BabyAI(level)
    env.reset(seed=seed)
    while True:
        step = env.step(env.oracle())
        if step.terminated or step.truncated:
            return bool(step.info["success"])


def hostile_text(chance: Any, env: Guarded) -> str:
    """A hostile text: alone, or after a piece of a possible action."""
    action = env.sample_random_action()
    text = TEXTS[int(chance.random() * len(TEXTS))]
    return text if chance.random() < 0.5 else f"Action: {action[: int(chance.random() * len(action))]}{text}"


def same_everywhere(quick: bool) -> int:
    """How many different hashes 1, 2 and 8 workers with two hash seeds give."""
    if quick:
        return different_hashes(IDS, seeds=1, wandering=4, cases=[(1, "0"), (2, "1")])
    return different_hashes(IDS, seeds=10, wandering=4)


def primitive_ratio(rounds: int) -> float:
    """The median ratio of the CPU time of the same primitive actions, ours over bare minigrid's."""
    world = World("BossLevel")
    import gymnasium

    bare: Any = gymnasium.make(minigrid_id("BossLevel"), disable_env_checker=True).unwrapped
    actions = [int(action) for action in derive(0, "actions").integers(0, 6, 400)]

    def timed(reset: Any, act: Any) -> float:
        reset(seed=1)
        began = process_time()
        for action in actions:
            act(action)
        return process_time() - began

    return interleaved(lambda: timed(bare.reset, bare.step), lambda: timed(world.reset, world.act), rounds)[2]


def step_cost(rounds: int) -> float:
    """The least mean CPU time of a step of random play with macro actions over some rounds, on two levels."""
    best = float("inf")
    for _ in range(rounds):
        spent, steps = 0.0, 0
        for level in ("GoToLocal", "BossLevel"):
            env = BabyAI(level)
            for seed in range(5):
                env.reset(seed=seed)
                over = False
                while not over and steps < 400:
                    action = env.sample_random_action()
                    began = process_time()
                    step = env.step(action)
                    spent += process_time() - began
                    steps += 1
                    over = step.terminated or step.truncated
        best = min(best, spent / steps * 1e6)
    return best
