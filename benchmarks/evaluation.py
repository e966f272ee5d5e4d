r"""What evaluating and looking cost: evaluation over the bare rollout, and the viewer on a large run.

    python benchmarks/evaluation.py            # a few minutes, writes 600 MB to a temporary folder
    python benchmarks/evaluation.py --quick    # fewer rounds, a run of 60 MB

The bare rollout is ``collect`` with the same environment, player and concurrency; the evaluation writes every trajectory, the
report in three forms and syncs them to disk. The viewer is asked over HTTP as a browser asks it; what the browser then does
with an episode is timed in ``tests/viewer/test_browser.py``. Left out: anything with a model.
"""

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from urllib.request import urlopen

import numpy as np
from rows import Row, finish, interleaved

from palestra import Completion, StopReason, Task, Trajectory, Turn, collect
from palestra.evaluation import evaluate
from palestra.foundation.encoding import floats, ints
from palestra.rollouts import TrajectoryWriter
from palestra.trajectory import Segment, Span

EPISODES = 4096
LONG = 100_000


# ------------------------------------------------------------------------------------------------------------ evaluation


def bare(env: str) -> float:
    began = process_time()
    collect(env, "random", n=EPISODES, concurrency=64, deadline=600.0)
    return process_time() - began


def evaluated(env: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = process_time()
        evaluate(env, "random", n=EPISODES, concurrency=64, deadline=600.0, out=folder)
        return process_time() - began


def evaluation_rows(quick: bool) -> list[Row]:
    rows = []
    for env in ("game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy"):
        low, high, ratio = interleaved(partial(bare, env), partial(evaluated, env), 3 if quick else 9)
        print(f"{env}: bare {low / EPISODES * 1e6:.0f} µs, evaluated {high / EPISODES * 1e6:.0f} µs of CPU an episode")
        rows.append(Row(f"evaluation over the bare rollout, CPU, {env}", ratio, "<= 1.1"))
    return rows


# ---------------------------------------------------------------------------------------------------------------- viewer

SERVER = """
import sys
from pathlib import Path
from palestra.viewer import view
view([Path(sys.argv[1])], browser=False, say=lambda text: print(text, flush=True))
"""


def long_run(folder: Path, episodes: int) -> None:
    """A run of ``episodes`` with 5,600 tokens each, one of them with 100,000."""
    rng = np.random.default_rng(0)
    with TrajectoryWriter(folder / "trajectories.jsonl") as writer:
        for number in range(episodes):
            writer.write(synthetic(number, LONG if number == episodes // 2 else 5600, rng))


def synthetic(number: int, tokens: int, rng: np.random.Generator) -> Trajectory:
    turns = 8
    each = tokens // turns
    spans = tuple(Span(turn * each + each // 2, (turn + 1) * each, turn, number // 1000) for turn in range(turns))
    logprobs = floats(-rng.exponential(1.0, sum(span.stop - span.start for span in spans)))
    said = tuple(Turn("an observation " * 50, Completion("what the policy wrote " * 40)) for _ in range(turns))
    segment = Segment(ints(rng.integers(0, 50_000, tokens)), spans, logprobs)
    return Trajectory(Task(f"game:G{number % 20}-v0", number // 4), StopReason.TERMINATED, said, (segment,), member=number % 4)


def asked(folder: Path, episodes: int) -> dict[str, float]:
    """Seconds and megabytes of one viewer process, started anew."""
    with subprocess.Popen([sys.executable, "-c", SERVER, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        out = {"first page": timed(f"{url}catalog.json")}
        while b'"read":1.0' not in urlopen(f"{url}catalog.json").read():
            pass  # the server reads on with every question, as it does for a browser
        out["episode of 100k tokens"] = timed(f"{url}runs/0/episodes/{episodes // 2}.json")
        out["search"] = timed(f"{url}runs/0/search.json?text=observation")
        status = Path(f"/proc/{process.pid}/status").read_text()
        out["memory, MB"] = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
        process.terminate()
    return out


def timed(url: str) -> float:
    began = perf_counter()
    urlopen(url).read()
    return perf_counter() - began


def viewer_rows(quick: bool) -> list[Row]:
    episodes = 1000 if quick else 10_000
    limits = {"first page": "<= 2", "episode of 100k tokens": "<= 1", "search": "", "memory, MB": "<= 300"}
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        long_run(folder, episodes)
        size = (folder / "trajectories.jsonl").stat().st_size / 1e6
        for state in ("no index yet", "indexed"):
            figures = asked(folder, episodes)
            rows += [Row(f"viewer, {episodes} episodes, {size:.0f} MB, {state}: {k}", v, limits[k]) for k, v in figures.items()]
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What evaluating and looking cost.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a smaller run")
    quick = parser.parse_args().quick
    finish([*viewer_rows(quick), *evaluation_rows(quick)])
