"""Gold calls with mistakes in them, judged by our environment and by the leaderboard's own checker.

The checker evaluates calls as Python, so it sees calls from the data and our own mutations of them only.
"""

import sys
from random import Random
from typing import Any

from palestra.registry import make
from palestra.trajectory import Task, ToolCall
from palestra.trajectory.calls import format_call
from palestra.worlds.bfcl.apis import Apis
from palestra.worlds.bfcl.package import CATEGORIES, gold_call, read_tasks
from palestra.worlds.bfcl.wheels import BFCL

Turns = list[list[ToolCall]]


def mutated(gold: Turns, rng: Random) -> Turns:
    """The gold calls with one mistake, or without."""
    turns = [list(turn) for turn in gold]
    places = [(turn, place) for turn, calls in enumerate(turns) for place in range(len(calls))]
    turn, place = rng.choice(places)
    call = turns[turn][place]
    match rng.randrange(7):
        case 0:
            del turns[turn][place]
        case 1:
            turns[turn].insert(place, call)
        case 2:
            rng.shuffle(turns[turn])
        case 3 if call.arguments:
            name = rng.choice(sorted(call.arguments))
            turns[turn][place] = ToolCall(call.name, {**call.arguments, name: _other(call.arguments[name], rng)})
        case 4:
            turns[(turn + 1) % len(turns)].append(turns[turn].pop(place))
        case 5:
            turns[rng.randrange(len(turns))].insert(0, turns[turn][place])
    return turns


def _other(value: Any, rng: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + rng.choice([1, -1, 0.5])
    return f"{value}x" if isinstance(value, str) else []


def our_verdict(id: str, index: int, turns: Turns) -> bool:
    with make(id) as env:
        env.reset(task=Task(id, 0, index=index))
        for calls in turns:
            if calls:
                env.step("".join(map(format_call, calls)))
            step = env.step("Done.")
            if step.terminated:
                return bool(step.info["success"])
    raise AssertionError("the episode did not end with the last turn")


def their_verdict(row: dict[str, Any], turns: Turns, name: str) -> bool:
    folder = str(BFCL.folder())
    if folder not in sys.path:
        sys.path.append(folder)
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    written = [[[_python(call) for call in calls]] if calls else [] for calls in turns]
    return bool(multi_turn_checker(written, row["gold"], row, "", name)["valid"])


def _python(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def _calls_too_early(row: dict[str, Any], turns: Turns) -> bool:
    """Whether a call needs a function that comes later: the checker makes such a call, our environment refuses it."""
    comes = {name: int(turn) for turn, names in row.get("missed_function", {}).items() for name in names}
    return any(turn < comes.get(call.name, 0) for turn, calls in enumerate(turns) for call in calls)


def disagreements(count: int, seed: int) -> tuple[list[str], int]:
    """The tasks and mutations on which the verdicts differ, of ``count``, and how many mutated episodes were right."""
    rng = Random(seed)
    differing = []
    right = 0
    for number in range(count):
        category = CATEGORIES[number % len(CATEGORIES)]
        index = rng.randrange(200)
        row = read_tasks(category)[index]
        methods = Apis(row).methods
        turns = mutated([[gold_call(written, methods) for written in turn] for turn in row["gold"]], rng)
        if _calls_too_early(row, turns):
            continue
        ours = our_verdict(f"tools:bfcl-{category.replace('_', '-')}", index, turns)
        right += ours
        if ours != their_verdict(row, turns, f"try_{seed}_{number}"):
            differing.append(f"{row['id']}: ours {ours}: {turns}")
    return differing, right
