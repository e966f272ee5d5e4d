"""Strategies on five games with one tiny model: score and sampled tokens of each, and tree search against greedy play.

The model is ``palestra model tiny`` (a few hundred thousand parameters), trained here for some CPU minutes to imitate a teacher
that plays the oracle's moves in the form that each strategy asks for. All strategies play the same tasks with the same weights
at temperature 1; ``greedy`` plays at temperature 0.

A strategy that samples more tokens should be compared with plain sampling that may sample as many. ``best_of`` with a majority
vote over 1 and 4 replies gives that curve. Its score at the tokens of each strategy is interpolated, task by task, and
the paired difference is printed. Tree search is privileged and stands apart.

``--search`` trains on the two games with tree search alone, and plays greedy and tree search alone: a fifth of the time.
``--random`` needs no model: it compares random moves with tree search over random moves in the same games.

    python benchmarks/strategies.py --out FOLDER [--quick] [--search | --random] [--page docs/results/strategies.md]
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rows import Row, finish

from palestra.core import Conversation, Policy, Sampling
from palestra.evaluation import Score, compare, evaluate_async, mean_interval, read_episodes, task_scores
from palestra.foundation.seeding import derive
from palestra.foundation.statistics import Estimate, score_bounds
from palestra.policies import RandomPolicy
from palestra.policies.choosing import BestOf
from palestra.policies.history import FullHistory, History, Summary
from palestra.policies.remembering import Reflect, Scratchpad
from palestra.policies.sampled import SampledPolicy
from palestra.policies.searching import FORKS, TreeSearch
from palestra.policies.strategy import named_strategy
from palestra.policies.thinking import Plan, ReAct
from palestra.rollouts import collect
from palestra.trajectory import Completion, text_of

ENVS = ("Sudoku", "Sokoban", "GuessTheNumber", "TowerofHanoi", "FifteenPuzzle")
SEARCHED = ("Sudoku", "Sokoban")
PLANNED = 3
"""Moves that the teacher's plan names."""
LESSONS = {"": 32, "plan": 8, "react": 8, "react?keep=false": 3, "scratchpad": 3, "summary": 3}
"""Episodes per environment that the teacher plays with each strategy."""

EPOCHS = 4
RANDOM = "random legal moves"


def env_id(name: str) -> str:
    return f"game:{name}-v0-easy"


# -------------------------------------------------------------------------------------------------------------- the model


class Teacher:
    """Plays the oracle's moves, in the form that the prompt asks for."""

    name = "teacher"
    privileged = True

    async def act(self, conversation: Conversation) -> Completion:
        asked = text_of(conversation.messages[-1].content)
        if Plan.request in asked:
            return Completion("Plan: " + " ".join(await self._next_moves(conversation)))
        if Summary.request in asked:
            return Completion("The game is going on.")
        move = await conversation.env.oracle()
        if any(ReAct.request in text_of(message.content) for message in conversation.messages):
            return Completion(f"Thought: {move} is next.\nAction: {move}")
        if Scratchpad.request in asked:
            return Completion(f"Notes: I play {move}.\nAction: {move}")
        return Completion(move)

    async def _next_moves(self, conversation: Conversation) -> list[str]:
        env = await conversation.env.fork()
        moves: list[str] = []
        try:
            for _ in range(PLANNED):
                moves.append(await env.oracle())
                step = await env.step(moves[-1])
                if step.terminated or step.truncated:
                    break
        finally:
            await env.close()
        return moves


def taught(folder: Path, lessons_of: dict[str, int], envs: Sequence[str], epochs: int) -> Path:
    """Return the folder of the trained model, and train it if it is not there."""
    if (folder / "model.safetensors").exists():
        return folder
    import torch
    import transformers

    from palestra.inference.models import build_tiny
    from palestra.inference.rendering import renderer_for
    from palestra.recipes.learner import LearnerConfig
    from palestra.recipes.model import ModelConfig
    from palestra.training.imitation import TaughtPolicy, imitate
    from palestra.training.learner.learner import Learner
    from palestra.training.learner.loading import load_model

    torch.set_num_threads(1)
    base = build_tiny(folder.with_name("untrained"))
    torch.manual_seed(0)
    network = load_model(ModelConfig(str(base)))
    words = transformers.AutoTokenizer.from_pretrained(base)
    renderer, lessons = renderer_for(words), []
    for name, count in lessons_of.items():
        history: History = Summary(4) if name == "summary" else FullHistory()
        teacher: Policy = TaughtPolicy(
            Teacher(), renderer, lambda text: list(words.encode(text, add_special_tokens=False)), 2048, history=history
        )
        if name not in ("", "summary"):
            teacher = named_strategy(name)(teacher)
        lessons += collect([env_id(env) for env in envs], teacher, n=count, seed=1_000_000, progress=False)
    print(f"{len(lessons)} lessons of {sum(len(s.ids) for one in lessons for s in one.segments):,} tokens", flush=True)
    learner = Learner(network, LearnerConfig(learning_rate=2e-3))
    rng = derive(0, "lessons")
    imitate(learner, [one for one in lessons if one.segments], epochs=epochs, minibatches=16, rng=rng)
    network.language_model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


# --------------------------------------------------------------------------------------------------------------- the arms


class Arm(NamedTuple):
    """A strategy as the table names it."""

    name: str
    policy: Policy
    wrappers: Sequence[str] = ()


def random_arms() -> list[Arm]:
    """Random moves, and tree search whose proposals are random moves: what the search adds without a model."""
    return [Arm(RANDOM, RandomPolicy()), Arm("tree search (privileged)", TreeSearch(RandomPolicy(), width=4, forks=FORKS))]


def arms(folder: Path) -> list[Arm]:
    import torch
    import transformers

    from palestra.inference.engines.hf import HFEngine
    from palestra.inference.rendering import renderer_for

    torch.set_num_threads(1)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    engine, renderer = HFEngine.load(folder, batch=64, rows=256), renderer_for(words)

    def policy(temperature: float = 1.0, history: History | None = None) -> SampledPolicy:
        made = SampledPolicy(renderer, engine, Sampling(max_tokens=48, temperature=temperature), history=history)
        made.name = "tiny"
        return made

    plain = policy()
    return [
        Arm("greedy", policy(0.0)),
        *(Arm(f"best of {n}, majority" if n > 1 else "sampled", BestOf(plain, n, "majority")) for n in (1, 4)),
        Arm("best of 4, likelihood", BestOf(plain, 4, "likelihood")),
        Arm("ReAct, thoughts kept", ReAct(plain)),
        Arm("ReAct, thoughts dropped", ReAct(plain, keep=False)),
        Arm("plan, then act", Plan(plain)),
        Arm("summary after 4 turns", policy(history=Summary(4))),
        Arm("scratchpad", Scratchpad(plain)),
        Arm("3 attempts, all in one prompt", plain, ("Attempts?n=3",)),
        Arm("3 attempts with reflection", Reflect(plain), ("Attempts?n=3",)),
        Arm("tree search (privileged)", TreeSearch(plain, width=4, forks=FORKS)),
    ]


class Played(NamedTuple):
    """The scores of one strategy in one environment."""

    score: Estimate
    scores: list[Score]
    tokens: float
    """Sampled tokens per episode."""


async def play(arm: Arm, env: str, n: int, out: Path) -> Played:
    folder = out / "runs" / f"{env},{arm.name}".replace(" ", "-")
    await evaluate_async(env_id(env), arm.policy, n=n, out=folder, concurrency=16, wrappers=arm.wrappers, deadline=3600.0)
    episodes = [one for one in read_episodes(folder) if one.reward is not None]
    scores = task_scores(episodes)
    estimate = mean_interval(scores, bounds=score_bounds(scores))
    return Played(estimate, scores, sum(one.tokens for one in episodes) / len(episodes))


# -------------------------------------------------------------------------------------------------------------- the table


def as_many_tokens(curve: Sequence[Played], tokens: float) -> list[Score]:
    """The scores of plain sampling with ``tokens`` sampled tokens per episode, interpolated task by task."""
    below = max((one for one in curve if one.tokens <= tokens), key=lambda one: one.tokens, default=curve[0])
    above = min((one for one in curve if one.tokens >= tokens), key=lambda one: one.tokens, default=curve[-1])
    share = 0.0 if above.tokens == below.tokens else (tokens - below.tokens) / (above.tokens - below.tokens)
    right = {score.task: score.value for score in above.scores}
    return [
        score._replace(value=score.value * (1 - share) + share * right[score.task])
        for score in below.scores
        if score.task in right
    ]


def difference(first: list[Score], second: list[Score]) -> Estimate:
    return compare(first, second, bounds=score_bounds([*first, *second])).difference


def shown(estimate: Estimate, sign: str = "") -> str:
    return f"{estimate.mean:{sign}.2f} [{estimate.low:{sign}.2f}, {estimate.high:{sign}.2f}]"


def table(env: str, played: dict[str, Played]) -> list[str]:
    curve = [one for name, one in played.items() if name == "sampled" or name.endswith("majority")]
    lines = [
        f"### `{env_id(env)}`",
        "",
        "| strategy | score | sampled tokens per episode | against plain sampling with as many tokens |",
        "|---|---|---|---|",
    ]
    for name, one in played.items():
        apart = not curve or "attempts" in name or "tree" in name or any(one is other for other in curve)
        against = "" if apart else shown(difference(one.scores, as_many_tokens(curve, one.tokens)), "+")
        lines.append(f"| {name} | {shown(one.score)} | {one.tokens:.0f} | {against} |")
    return [*lines, ""]


async def measured(chosen: Sequence[Arm], envs: Sequence[str], out: Path, n: int, page: Path | None) -> list[Row]:
    """Play everything; write the tables to ``page`` after each environment."""
    lines: list[str] = []
    rows: list[Row] = []
    for env in envs:
        played: dict[str, Played] = {}
        for arm in chosen:
            if arm.name.startswith("tree") and env not in SEARCHED:
                continue
            began = time.process_time()
            played[arm.name] = await play(arm, env, n, out)
            spent = time.process_time() - began
            print(
                f"{env:16} {arm.name:32} {shown(played[arm.name].score)} {played[arm.name].tokens:8.0f} {spent:6.1f} s",
                flush=True,
            )
        lines += table(env, played)
        if env in SEARCHED:
            plain = RANDOM if RANDOM in played else "greedy"
            won = difference(played["tree search (privileged)"].scores, played[plain].scores)
            lines += [f"Tree search − {plain}: {shown(won, '+')}.", ""]
            rows.append(Row(f"{env}: tree search − {plain}, lower end of the interval", won.low, ">= 1e-9"))
        if page is not None:
            write_page(page, lines)
    return rows


def write_page(page: Path, lines: Sequence[str]) -> None:
    """Replace the part of ``page`` between its marks."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- tables -->")
    after = rest.partition("<!-- end of tables -->")[2]
    body = "\n".join(lines)
    page.write_text(f"{before}<!-- tables -->\n\n{body}\n<!-- end of tables -->{after}", encoding="utf-8")


def main(arguments: Any = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument("-n", type=int, default=30)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    began = time.process_time()
    if options.random:
        finish(asyncio.run(measured(random_arms(), SEARCHED, options.out, options.n, options.page)))
    envs = SEARCHED if options.search else ENVS
    lessons = {"": LESSONS[""]} if options.search else LESSONS
    lessons = {name: max(2, count // 8) if options.quick else count for name, count in lessons.items()}
    folder = taught(options.out / "model", lessons, envs, 1 if options.quick else EPOCHS)
    print(f"model after {time.process_time() - began:.0f} CPU seconds", flush=True)
    chosen = [arm for arm in arms(folder) if not options.search or arm.name.startswith(("greedy", "tree"))]
    rows = asyncio.run(measured(chosen, envs, options.out, 4 if options.quick else options.n, options.page))
    rows.append(Row("CPU minutes", (time.process_time() - began) / 60, ""))
    finish(rows)


if __name__ == "__main__":
    main()
