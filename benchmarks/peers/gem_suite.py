"""CPU seconds of GEM's resets and steps, id by id; runs in the peers' venv and prints one line of JSON.

    python gem_suite.py SECONDS ID...

Each id gets about SECONDS for its resets. An id that GEM cannot make or play here (word lists to be downloaded) is ``null``.
"""

import json
import statistics
import sys
from time import process_time

import gem


def measured(id, seconds):
    env = gem.make(id)
    resets, steps = [], []
    began = process_time()
    seed = 0
    while seed < 2 or (process_time() - began < seconds and seed < 200):
        at = process_time()
        env.reset(seed=seed)
        resets.append(process_time() - at)
        seed += 1
        for _ in range(10):
            action = chosen(env, id)
            at = process_time()
            _, _, terminated, truncated, _ = env.step(action)
            steps.append(process_time() - at)
            if terminated or truncated:
                break
    return {"reset": statistics.median(resets), "step": statistics.median(steps), "resets": len(resets)}


def chosen(env, id):
    """A random action; a fixed one where GEM has no random ones."""
    try:
        return env.sample_random_action()
    except NotImplementedError:
        return "\\boxed{A B}" if "Hanoi" in id else "\\boxed{1 1 1}"


def main():
    seconds, ids = float(sys.argv[1]), sys.argv[2:]
    found = {}
    for id in ids:
        try:
            found[id] = measured(id, seconds)
        except Exception as error:
            found[id] = None
            print(f"{id}: {error!r}", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
