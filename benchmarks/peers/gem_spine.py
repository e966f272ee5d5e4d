"""GEM's vector step over a bare loop of GEM's own environments; runs in the peers' venv and prints one line of JSON."""

import json
from time import process_time

import gem

GAME = "game:GuessTheNumber-v0-easy"


def bare(n: int, steps: int) -> float:
    envs = [gem.make(GAME) for _ in range(n)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    began = process_time()
    for step in range(steps):
        for index, env in enumerate(envs):
            _, _, terminated, truncated, _ = env.step(f"\\boxed{{{(index + step) % 10 + 1}}}")
            if terminated or truncated:
                env.reset()
    return (process_time() - began) / (steps * n)


def vector(n: int, steps: int, asynchronous: bool) -> float:
    vec = gem.make_vec([GAME] * n, async_mode=asynchronous)
    vec.reset()
    began = process_time()
    for step in range(steps):
        vec.step([f"\\boxed{{{(index + step) % 10 + 1}}}" for index in range(n)])
    return (process_time() - began) / (steps * n)


def main() -> None:
    found = {}
    for n in (64, 512):
        steps = max(10_000 // n, 4)
        for asynchronous in (False, True):
            ratios = sorted(vector(n, steps, asynchronous) / bare(n, steps) for _ in range(3))
            found[f"{'async' if asynchronous else 'sync'} vector CPU over its bare loop, N={n}"] = ratios[1]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
