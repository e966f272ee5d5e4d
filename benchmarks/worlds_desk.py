"""The service desk: oracle, determinism with the scripted customer, mutants, hostile actions, cost per step."""

import hashlib
import multiprocessing
import os
import subprocess
import sys
from time import process_time

from rows import Row

from palestra.core import Env, Step
from palestra.registry import make, spec
from palestra.trajectory import text_of

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


def episode(id: str, seed: int) -> tuple[str, float, int]:
    """The oracle's episode: its hash, its reward and its number of steps."""
    with make(id) as env:
        observation, _ = env.reset(seed=seed)
        said = [text_of(observation)]
        for turn in range(200):
            action = env.oracle()
            step: Step = env.step(action)
            said += [action, text_of(step.observation), repr(step[1:])]
            if step.terminated or step.truncated:
                return hashlib.sha256("\n".join(said).encode()).hexdigest(), step.reward, turn + 1
    raise AssertionError(f"{id} with seed {seed} does not end")


def played(job: tuple[str, int]) -> tuple[str, float, int]:
    return episode(*job)


def digest(workers: int, episodes: int) -> str:
    """One hash over ``episodes`` episodes, played by so many processes."""
    jobs = [(IDS[place % len(IDS)], place // len(IDS)) for place in range(episodes)]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        hashes = [found for found, _, _ in pool.map(played, jobs, chunksize=10)]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def digests(episodes: int) -> set[str]:
    """The hashes with 1, 2 and 8 processes and two hash seeds: one, if everything is deterministic."""
    found = set()
    for seed in ("1", "2"):
        for workers in (1, 2, 8):
            command = [sys.executable, __file__, str(workers), str(episodes)]
            ran = subprocess.run(
                command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
            )
            found.add(ran.stdout.strip())
    return found


def faults(actions: int, hostile: bool) -> int:
    """Steps that raise, or whose reward is out of range."""
    wrong = done = 0
    seed = 0
    while done < actions:
        known = spec(IDS[seed % len(IDS)])
        env = known.factory()(**known.kwargs)
        assert isinstance(env, Env)
        env.reset(seed=seed)
        for turn in range(60):
            action = HOSTILE[(turn + seed) % len(HOSTILE)] if hostile else env.sample_random_action()
            step = env.step(action)
            wrong += not 0.0 <= step.reward <= 1.0
            done += 1
            if step.terminated:
                break
        seed += 1
    return wrong


def step_cost(episodes: int) -> float:
    """CPU seconds per step of the oracle's episodes, the oracle and the reset included."""
    began, steps = process_time(), 0
    for seed in range(episodes):
        steps += episode(IDS[seed % len(IDS)], seed)[2]
    return (process_time() - began) / steps


def rows(quick: bool) -> list[Row]:
    """The rows of the service desk."""
    from tests.envs.desk.mutants import RULES, mutants

    count = 10 if quick else 250
    solved = [episode(id, seed)[1] for id in IDS for seed in range(count)]
    outcomes = [one for domain in ("shop", "library") for _, _, one in mutants(domain, range(6 if quick else 100))]
    found = [one.rule in one.last.info["broken"] and not one.last.info["success"] for one in outcomes]
    size = 300 if quick else 10_000
    return [
        Row(f"oracle solves, share of {len(solved)} tasks", sum(solved) / len(solved), ">= 1"),
        Row(f"different hashes, 1/2/8 processes x 2 hash seeds, {4 * count} episodes", len(digests(4 * count)), "<= 1"),
        Row(f"mutants that the grader finds, share of {len(found)}", sum(found) / len(found), ">= 1"),
        Row("rules that no mutant breaks", len(RULES - {one.rule for one in outcomes}), "" if quick else "<= 0"),
        Row(f"{size} random actions, faults", faults(size, hostile=False), "<= 0"),
        Row(f"{size} hostile actions, faults", faults(size, hostile=True), "<= 0"),
        Row("oracle's step, all included, µs of CPU", 1e6 * step_cost(count), ""),
    ]


if __name__ == "__main__":
    print(digest(int(sys.argv[1]), int(sys.argv[2])))
