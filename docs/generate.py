"""Writes the pages of the suite: one per family, a gallery, and the table of scores.

    python docs/generate.py scores            # play every id that needs no download, 200 tasks each; resumes where it stopped
    python docs/generate.py scores "rg:*"     # only these
    python docs/generate.py pages             # write the pages from the registry and the table
    python docs/generate.py all "game:Nim*"   # both, for a new family: its scores, its page and the gallery

The table is ``docs/reference/suite/scores.json``. A player gets ``SECONDS`` of CPU time per id; if that is not enough for 200
tasks, the table says how many were played. Ids whose data or programs are not on this machine are left out. A page with an id
whose extra is not installed is left as it is, with a sentence.
Each game has a picture, ``pictures/NAME.svg``: the board after some moves of the oracle.
"""

import argparse
import inspect
import json
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

from palestra import list_envs, make
from palestra.adapters import Guarded
from palestra.authoring.picture import drawn_svg
from palestra.errors import MissingData, Unsupported
from palestra.foundation.seeding import derive_seed
from palestra.foundation.statistics import Score, mean_interval
from palestra.registry import EnvSpec
from palestra.suite.games.game import Game
from palestra.trajectory import Task, text_of

FOLDER = Path(__file__).parent / "reference" / "suite"
TABLE = FOLDER / "scores.json"
PICTURES = FOLDER / "pictures"
TASKS = 200
SECONDS = 60.0
LONGEST = 1000
SHOWN = 1200
"""Characters of an observation that a page shows."""

Scores = dict[str, dict[str, Any]]


# --------------------------------------------------------------------------------------------------------------- scores


def playable(pattern: str) -> list[EnvSpec]:
    """Ids with levels rather than bare ones, whose packages are here."""
    return [
        known for known in list_envs(pattern) if not is_bare(known) and not known.missing() and not known.id.endswith("-search")
    ]


def is_bare(known: EnvSpec) -> bool:
    return bool(known.level) and not known.id.endswith(f"-{known.level}")


def play(env: Guarded, task: Task, player: str) -> tuple[float, bool]:
    """The total reward and the success of one episode."""
    env.reset(task=task)
    if player == "random":
        env.seed_actions(derive_seed(task.seed, "scores"))
    total = 0.0
    for _ in range(LONGEST):
        step = env.step(env.oracle() if player == "oracle" else env.sample_random_action())
        total += step.reward
        if step.terminated or step.truncated:
            return total, bool(step.info.get("success"))
    return total, False


def measured(known: EnvSpec, player: str) -> dict[str, Any] | None:
    """How ``player`` does on ``known``, or ``None`` if there is no such player."""
    totals, wins = [], 0
    began = process_time()
    with make(known.id) as env:
        for seed in range(TASKS):
            try:
                total, won = play(env, Task(known.id, seed), player)
            except Unsupported:
                return None
            totals.append(total)
            wins += won
            if process_time() - began > SECONDS:
                break
    bounds = (min(0.0, *totals, -0.1 if known.namespace == "game" else 0.0), max(1.0, *totals))
    estimate = mean_interval([Score((), place, total) for place, total in enumerate(totals)], bounds=bounds)
    score: dict[str, Any] = {
        "mean": round(estimate.mean, 4),
        "low": round(estimate.low, 4),
        "high": round(estimate.high, 4),
        "success": round(wins / len(totals), 4),
        "tasks": len(totals),
    }
    if len(totals) < TASKS:
        score["why"] = f"{SECONDS:g} s of processor time, the most a player gets, were used up: the generator is slow"
    return score


def write_scores(pattern: str) -> None:
    table: Scores = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    for known in playable(pattern):
        if known.id in table:
            continue
        try:
            table[known.id] = {player: measured(known, player) for player in ("oracle", "random")}
            table[known.id] |= bounds_of(known)
        except MissingData:
            continue
        print(known.id, table[known.id], file=sys.stderr, flush=True)
        TABLE.write_text("{\n" + ",\n".join(f"{json.dumps(id)}: {json.dumps(table[id])}" for id in sorted(table)) + "\n}\n")


def bounds_of(known: EnvSpec) -> dict[str, float]:
    """The floor, and the ceiling where there is one."""
    with make(known.id) as env:
        env.reset(seed=0)
        found = {"floor": round(float(env.unwrapped.floor), 4)}
        ceiling = env.unwrapped.ceiling
    return found if ceiling is None else {**found, "ceiling": round(float(ceiling), 4)}


# ---------------------------------------------------------------------------------------------------------------- pages


def families() -> dict[str, list[EnvSpec]]:
    """Pages → the ids on them. A game has a page of its own; the generators share one for each kind, the data sets by use."""
    pages: dict[str, list[EnvSpec]] = defaultdict(list)
    for known in list_envs("*"):
        if known.namespace == "game":
            pages[known.family].append(known)
        elif known.namespace == "rg":
            (kind,) = known.tags - {"reasoning"}
            pages[f"reasoning-{kind}"].append(known)
        elif known.namespace in ("math", "code", "logic", "qa", "eval"):
            pages[known.namespace].append(known)
    return dict(sorted(pages.items()))


WORLDS = {
    "craft": ("craft:*", "Craft an item from its recipe, the parts from theirs, down to materials that can be fetched"),
    "babyai": (
        "babyai:*",
        "Move through rooms on a grid and carry out a mission: minigrid's levels as text or pictures",
    ),
    "bfcl": (
        "tools:bfcl-*",
        "A user asks for one thing after another, and the agent calls functions of simulated APIs to do them",
    ),
    "desk": (
        "tools:desk-*",
        "Serve customers of a shop or a library: read and change a database through tools, and keep the rules",
    ),
    "agentdojo": (
        "tools:dojo-*",
        "Fulfill requests with tools on a user's data, which may contain attacks; security is measured apart from the reward",
    ),
    "house": ("house:*", "ALFWorld's six types of household tasks in rooms drawn from a seed, and its real games"),
    "science": (
        "science:*",
        "Experiments of elementary school science in a simulated house: ScienceWorld's 30 tasks",
    ),
    "search": (
        "search:*",
        "Search, read and search again: questions of several hops about an invented world and about real facts",
    ),
    "terminal": (
        "terminal:*",
        "Work in a real shell in a box: twelve families of tasks drawn from seeds, graded outside the box",
    ),
    "textworld": ("text:*", "Text adventures drawn from a seed: TextWorld's coin, treasure, cooking and simple games"),
    "web": ("web:*", "Tasks in a real browser without a network: the small pages of MiniWoB++, and whole sites"),
}
"""Pages that are written by hand: the pattern of their ids, and a sentence for the index."""


def page(name: str, specs: list[EnvSpec], table: Scores) -> str:
    """One page: what it is, how it is played, its ids and scores, and an episode."""
    ids = [known for known in specs if not is_bare(known)]
    parts = [f"# {name}", wrapped(specs[0].description if specs[0].namespace == "game" else ABOUT[specs[0].namespace])]
    if (PICTURES / f"{name}.svg").exists():
        parts.append(f"![A board of {name}](pictures/{name}.svg)")
    parts.append(rules(specs))
    parts += ["## Ids", "\n".join([*id_table(ids, table)])]
    example = next((shown for known in ids if (shown := episode(known))), "")
    if example:
        parts += ["## An episode", example]
    return "\n\n".join(part for part in parts if part) + "\n"


ABOUT = {
    "rg": (
        "Generators of reasoning-gym: one question, one answer in `\\boxed{}`, which the generator scores between 0 and 1. "
        "`make(id, level=2)` selects a level of the generator's curriculum, and `make(id, max_terms=3)` sets a parameter; "
        "`palestra.suite.reasoning.library.curriculum(name)` lists them. A random player gives the right answer of another "
        "task."
    ),
    "math": "Mathematics with a known answer, in one turn or (`-python`) with a Python interpreter in a box.",
    "code": "Programming problems judged by hidden tests in a box, in one turn or (`-feedback`) with runs of the public tests.",
    "logic": "Does a statement follow from facts and rules?",
    "qa": "Open-domain questions, in one turn or (`-search`) with a search tool over the index that `PALESTRA_SEARCH` names.",
    "eval": "Data sets for evaluation: mathematics, questions and code.",
}


def wrapped(text: str) -> str:
    """Return a paragraph with lines of at most 140 characters, as in the pages that are written by hand."""
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)


def rules(specs: list[EnvSpec]) -> str:
    known = next((known for known in specs if not known.missing()), None)
    if known is None:
        return ""
    kind = known.factory()
    module = inspect.getdoc(sys.modules[kind.__module__]) or ""
    low, high = getattr(kind, "reward_range", ("?", "?"))
    how = inspect.getdoc(kind) or ""
    return f"{plain(module)}\n\n{plain(how)}\n\nReward of a step: from {low} to {high}."


def plain(text: str) -> str:
    """A docstring as Markdown."""
    return text.replace("``", "`")


def id_table(ids: list[EnvSpec], table: Scores) -> Iterator[str]:
    yield "| id | parameters | turns | oracle | random | floor | ceiling | tasks |"
    yield "|---|---|---|---|---|---|---|---|"
    for known in ids:
        row = table.get(known.id, {})
        parameters = ", ".join(f"{key}={value}" for key, value in known.kwargs.items() if key not in ("max_turns", "name"))
        if len(parameters) > 80:
            parameters = f"{parameters[:77]}…"
        played = "/".join(str(one["tasks"]) for one in (row.get("oracle"), row.get("random")) if one)
        floor = row.get("floor", "")
        cells = (
            f"`{known.id}`",
            parameters,
            known.max_turns or "",
            told(row.get("oracle")),
            told(row.get("random")),
            floor,
            row.get("ceiling", ""),
            played,
        )
        yield f"| {' | '.join(map(str, cells))} |"


def told(score: dict[str, Any] | None) -> str:
    return "" if not score else f"{score['mean']:.3f} [{score['low']:.3f}, {score['high']:.3f}]"


def episode(known: EnvSpec) -> str:
    """The first turns of task 0 by the oracle, as text."""
    if known.missing():
        return ""
    lines = []
    try:
        with make(known.id) as env:
            observation, _ = env.reset(task=Task(known.id, 0))
            lines.append(block(text_of(observation)))
            for _ in range(2):
                action = env.oracle()
                step = env.step(action)
                lines += ["The oracle:", block(action), f"Reward {step.reward:g}.", block(text_of(step.observation))]
                if step.terminated or step.truncated:
                    break
    except (MissingData, Unsupported):
        return ""
    return f"Task `{known.id}`, seed 0.\n\n" + "\n\n".join(line for line in lines if line)


def block(text: str) -> str:
    text = text.rstrip().replace("`" * 3, "'" * 3)  # a fence within a fence would be taken for a snippet of ours
    return f"~~~~text\n{text if len(text) <= SHOWN else text[:SHOWN] + ' …'}\n~~~~" if text else ""


READING = """\
## How the worlds read a reply

In the crafting worlds, BabyAI, ScienceWorld, household tasks and TextWorld, an action is one line of text. All of them find it
by the same rule (`palestra.authoring.action_line`):

1. If the reply contains `Action:`, the action follows the last one, on the same line or on the next line with words.
2. Otherwise the action is the last line with words.

So a model may think before its action in any case, and after it only if it writes `Action:`. Upper and lower case do not
matter, and `**Action**:` counts, too. Quotation marks, brackets, marks of Markdown, periods and exclamation marks around the
action are removed. `craft:minecraft-agentgym` keeps AgentGym's rule instead: a reply must contain `Action:` exactly once."""


ABOUT_THE_SUITE = """\
Every family has a page with its rules, its ids and an example episode. The scores on the pages are mean total rewards of the
oracle and of random play, with 95 % intervals, from [scores.json](scores.json). The floor is the mean score of the best
constant answer. The ceiling is the mean score of the best player, if chance or an opponent makes some tasks unsolvable; the
page of the family says where the number comes from. `python docs/generate.py pages` writes this index and the pages of games,
questions and data sets; the pages of the worlds, at the end of the table, are written by hand."""


def gallery(pages: dict[str, list[EnvSpec]]) -> str:
    lines = [
        "# The suite",
        "",
        ABOUT_THE_SUITE,
        "",
        "| page | ids | about |",
        "|---|---|---|",
    ]
    for name, specs in pages.items():
        about = (
            specs[0].description
            if specs[0].namespace == "game"
            else ABOUT[specs[0].namespace].partition(". ")[0].removesuffix(".")
        )
        lines.append(f"| [{name}]({name}.md) | {sum(not is_bare(known) for known in specs)} | {about} |")
    for name, (pattern, about) in sorted(WORLDS.items()):
        lines.append(f"| [{name}]({name}.md) | {sum(not is_bare(known) for known in list_envs(pattern))} | {about} |")
    return "\n".join([*lines, "", READING]) + "\n"


def write_picture(name: str, known: EnvSpec) -> None:
    """The board of task 1 half-way to where the oracle wins."""
    env = known.factory()(**known.kwargs)
    assert isinstance(env, Game)
    env.reset(seed=1)
    left = 0
    for wanted in (None, 1):  # once to the end, to know where half-way is, and once up to there
        env.reset(seed=1)
        turns = LONGEST if wanted is None else left // 2
        left = 0
        while left < turns and not any(env.step(env.oracle())[2:4]):
            left += 1
    if picture := env.picture():  # a game without a board has none
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / f"{name}.svg").write_text(drawn_svg(picture))


def write_pages(pattern: str = "*") -> None:
    """Write the pages that have an id which matches ``pattern``, and the gallery."""
    table: Scores = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    pages = families()
    wanted = {known.id for known in list_envs(pattern)}
    for name, specs in pages.items():
        if not wanted & {known.id for known in specs}:
            continue
        # The rules and the episode would be those of another id, or none.
        lacking = {need.extra for known in specs for need in known.missing() if need.extra}
        if lacking:
            print(f"left as it is: {name}.md, which needs the extra {', '.join(sorted(lacking))}", file=sys.stderr)
            continue
        if specs[0].namespace == "game" and not specs[0].missing() and name != "Maze":  # a maze is told in words
            write_picture(name, specs[0])
        (FOLDER / f"{name}.md").write_text(page(name, specs, table))
    (FOLDER / "index.md").write_text(gallery(pages))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("scores", "pages", "all"))
    parser.add_argument("pattern", nargs="?", default="*")
    chosen = parser.parse_args()
    if chosen.what in ("scores", "all"):
        write_scores(chosen.pattern)
    if chosen.what in ("pages", "all"):
        write_pages(chosen.pattern)
