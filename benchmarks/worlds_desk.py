"""The service desk: oracle, determinism with the scripted customer, mutants, hostile actions, cost per step."""

from itertools import cycle
from time import process_time

from rows import Row
from survival import survival_rows
from tests.suite.many_actions import Player
from tests.suite.same_everywhere import EVERY_CASE, different_hashes
from tests.worlds.desk.mutants import RULES, mutants

from palestra.registry import make

IDS = [f"tools:desk-{domain}-{level}" for domain in ("shop", "library") for level in ("easy", "hard")]
HOSTILE = (
    "",
    "\x00\ud800",
    "<tool_call>" * 2000,
    '<tool_call>{"name": "close_cas", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "find_customer", "arguments": {"name": [], "postcode": {}}}</tool_call>',
    '<tool_call>{"name": "renew_loan", "arguments": {"loan": "L1", "days": 1e308}}</tool_call>',
    '<tool_call>{"name": "return_items", "arguments": {"order": "W1", "articles": [[]], "refund_to": null}}</tool_call>',
    "confirm? anything else? name? " * 500,
)


def episode(id: str, seed: int) -> tuple[float, int]:
    """The oracle's episode: its reward and its number of steps."""
    with make(id) as env:
        env.reset(seed=seed)
        for turn in range(200):
            step = env.step(env.oracle())
            if step.terminated or step.truncated:
                return step.reward, turn + 1
    raise AssertionError(f"{id} with seed {seed} does not end")


def hostile_player() -> Player:
    """A player of the hostile texts, one after the other."""
    texts = cycle(HOSTILE)
    return lambda *_: next(texts)


def step_cost(episodes: int) -> float:
    """CPU seconds per step of the oracle's episodes, the oracle and the reset included."""
    began, steps = process_time(), 0
    for seed in range(episodes):
        steps += episode(IDS[seed % len(IDS)], seed)[1]
    return (process_time() - began) / steps


def rows(quick: bool) -> list[Row]:
    """The rows of the service desk."""
    count = 5 if quick else 250
    solved = [episode(id, seed)[0] for id in IDS for seed in range(count)]
    outcomes = [one for domain in ("shop", "library") for _, _, one in mutants(domain, range(6 if quick else 100))]
    found = [one.rule in one.last.info["broken"] and not one.last.info["success"] for one in outcomes]
    cases = [(1, "0"), (2, "1")] if quick else EVERY_CASE
    different = different_hashes(IDS, seeds=count, wandering=0, cases=cases)
    return [
        Row(f"oracle solves, share of {len(solved)} tasks", sum(solved) / len(solved), ">= 1"),
        Row(f"different hashes, {len(cases)} pairs of processes and hash seeds, {4 * count} episodes", different, "<= 1"),
        Row(f"mutants that the grader finds, share of {len(found)}", sum(found) / len(found), ">= 1"),
        Row("rules that no mutant breaks", len(RULES - {one.rule for one in outcomes}), "" if quick else "<= 0"),
        *survival_rows(IDS, 300 if quick else 10_000, hostile_player()),
        Row("oracle's step, all included, µs of CPU", 1e6 * step_cost(count), ""),
    ]
