r"""A tiny run, killed with SIGKILL at as many points as wanted and resumed each time: does it end as if nothing had happened?

    python -m tests.training.kill_run                 # every kind of point, 220 in all, and 30 from outside; minutes
    python -m tests.training.kill_run --points 20 --outside 2

The run has a warm start, an evaluation, four steps and two checkpoints. A point is the moment before or after something that
leaves a trace: a sync, a rename, a removal, a folder made, a line of the ledger, a recorded step or episode, a request to the
engine, an update of the weights, half of an optimizer's step, a published version. A first life counts them; then, for each
point chosen, one life is killed there by its own hand, in the middle of what it was doing, and the next one goes on to the end.
From outside, lives are killed at random times. What must be equal to the bit: weights, optimizer, generator, ledger, and which
tokens were sampled and recorded.

Every life is a fork of one process that has imported everything, loaded the model once, and never run backward.
"""

import argparse
import contextlib
import hashlib
import inspect
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers

from palestra.durable.checkpoint import Checkpoints
from palestra.durable.ledger import Ledger
from palestra.inference.engines.hf import HFEngine
from palestra.inference.models import build_tiny
from palestra.inference.rendering import renderer_for
from palestra.recipes.config import TrainConfig
from palestra.recipes.model import ModelConfig
from palestra.rollouts import TrajectoryWriter, read_trajectories
from palestra.training import record, trainer, warm_start
from palestra.training.learner import learner, state
from palestra.training.learner.loading import load_model
from palestra.training.record import read_metrics
from palestra.training.run import train

GAME = "game:GuessTheNumber-v0-easy"


def config(model: Path) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(model)},
        "envs": {GAME: 1.0},
        "steps": 4,
        # One request at a time: then the arithmetic of sampling does not depend on who is in the batch with whom.
        "play": {"tasks": 2, "group_size": 2, "concurrency": 1, "max_tokens": 6},
        "engine": {"batch": 1, "rows": 1},
        "warm_start": {"teacher": "random", "episodes": 4, "epochs": 1, "minibatches": 1, "learning_rate": 1e-3},
        "evaluation": {"every": 2, "n": 2},
        "advantage": {"discount": 0.9},
        "learner": {"learning_rate": 1e-2},
        "minibatches": 2,
        "checkpoint_every": 2,
    }
    return msgspec.convert(data, TrainConfig)


class Points:
    """Counts the points that a life passes, and kills it at one of them."""

    def __init__(self, fatal: int = -1) -> None:
        self.fatal = fatal
        self.labels: list[str] = []

    def pass_by(self, label: str) -> None:
        self.labels.append(label)
        if len(self.labels) - 1 == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:
        """A point before and one after every call of ``owner.name``, which may be a coroutine."""
        original, label = getattr(owner, name), f"{getattr(owner, '__name__', owner)}.{name}"

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.pass_by(f"before {label}")
            result = original(*args, **kwargs)
            if inspect.iscoroutine(result):
                return ended(result)
            self.pass_by(f"after {label}")
            return result

        async def ended(result: Any) -> Any:
            done = await result
            self.pass_by(f"after {label}")
            return done

        setattr(owner, name, wrapped)

    def install(self) -> None:
        """Into a process of its own: nothing is put back."""
        for name in ("fsync", "rename", "replace", "mkdir", "unlink"):
            self.around(os, name)
        for owner, name in (
            *((shutil, "rmtree"), (Ledger, "_append"), (Checkpoints, "_write_name"), (TrajectoryWriter, "write")),
            *((record.RunRecord, "add"), (learner.Learner, "update"), (learner.Learner, "accumulate")),
            *((learner, "write_state"), (state, "write_whole"), (warm_start, "imitate")),
            *((trainer.Trainer, "_publish"), (HFEngine, "generate")),
        ):
            self.around(owner, name)
        self._halve_the_optimizer()

    def _halve_the_optimizer(self) -> None:
        """A point at which half of the weights have been updated."""
        optimizers: Any = torch.optim
        original = optimizers.AdamW.step

        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            (group,) = optimizer.param_groups
            parameters = group["params"]
            for part in (parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]):
                group["params"] = part
                original(optimizer, *args, **kwargs)
                self.pass_by("inside AdamW.step")
            group["params"] = parameters

        optimizers.AdamW.step = step


def live(model: Path, folder: Path, points: Points | None, report: Path) -> None:
    """One life of the run, in this process: to its end, or to its fatal point."""
    torch.set_num_threads(1)
    points = points or Points()
    points.install()
    settings = config(model)
    run = train(settings, folder, check=False)
    report.write_text(fingerprint(run) + "\n" + "\n".join(points.labels))


def fingerprint(run: trainer.Trainer) -> str:
    hasher = hashlib.sha256()
    for parameter in run.learner.parameters:
        hasher.update(parameter.detach().numpy().tobytes())
        for value in run.learner.optimizer.state[parameter].values():
            hasher.update(value.numpy().tobytes())
    hasher.update(torch.get_rng_state().numpy().tobytes())
    hasher.update((run.folder / "ledger").read_bytes())
    for one in read_trajectories(run.folder / "trajectories.jsonl"):
        said = [(segment.ids.tolist(), segment.logprobs.tolist()) for segment in one.segments]
        hasher.update(repr((one.info["step"], said)).encode())
    told = [(line["step"], line["reward"], line.get("evaluation/score")) for line in read_metrics(run.folder)]
    hasher.update(repr(told).encode())
    return hasher.hexdigest()


def in_a_fork(work: Callable[[], None], kill_after: float | None = None) -> int:
    """The wait status of a child that does ``work``, killed after so many seconds if it still lives."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
                work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - whatever it raises is reported
            print(f"a life ended with {error!r}", file=sys.__stderr__, flush=True)
            os._exit(1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


class Trial:
    """The undisturbed run, and how others compare with it."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.model = scratch / "tiny"
        # In a fork: this process must not compute.
        made = in_a_fork(lambda: print(build_tiny(self.model, envs="game:GuessTheNumber*", words=400, width=32)))
        assert made == 0
        _import_everything(self.model)
        began = time.monotonic()
        self.wanted, self.labels = self._finished(scratch / "undisturbed")
        self.seconds = time.monotonic() - began

    def _finished(self, folder: Path) -> tuple[str, list[str]]:
        report = self.scratch / "report"
        report.unlink(missing_ok=True)
        status = in_a_fork(lambda: live(self.model, folder, None, report))
        if status:
            return f"the resumed life ended with status {status}", []
        wanted, *labels = report.read_text().splitlines()
        return wanted, labels

    def killed_at(self, point: int) -> bool:
        """Whether a run that was killed at ``point`` ends as the undisturbed one does."""
        folder = self.scratch / f"at-{point}"
        status = in_a_fork(lambda: live(self.model, folder, Points(point), self.scratch / "never"))
        return self._resumed(folder, status)

    def killed_after(self, seconds: float) -> bool | None:
        """The same for a run that was killed from outside; ``None`` if it had come to its end by then."""
        folder = self.scratch / f"after-{seconds:.6f}"
        status = in_a_fork(lambda: live(self.model, folder, None, self.scratch / "never"), seconds)
        return self._resumed(folder, status) if status else None

    def _resumed(self, folder: Path, status: int) -> bool:
        assert os.WIFSIGNALED(status), f"the life ended with status {status} before it was killed"
        assert os.WTERMSIG(status) == signal.SIGKILL
        same = self._finished(folder)[0] == self.wanted
        if same:
            shutil.rmtree(folder)
        return same

    def chosen(self, count: int) -> Iterator[int]:
        """``count`` points: some of every kind, then evenly over the rest."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for place, label in enumerate(self.labels):
            first.setdefault(label, place)
            last[label] = place
        every = [*dict.fromkeys([*first.values(), *last.values()])]
        rest = [place for place in range(len(self.labels)) if place not in set(every)]
        random.Random(0).shuffle(rest)
        yield from sorted([*every, *rest][:count])


def _import_everything(model: Path) -> None:
    """So that no life has to: what is imported when it is first needed takes longer than the run itself."""
    torch.set_num_threads(1)
    renderer_for(transformers.AutoTokenizer.from_pretrained(model))
    load_model(ModelConfig(str(model)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=220)
    parser.add_argument("--outside", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        trial = Trial(Path(scratch))
        print(f"{len(trial.labels)} points of {len(set(trial.labels))} kinds: {dict(Counter(trial.labels))}", flush=True)
        points = list(trial.chosen(options.points))
        outcomes: dict[str, bool | None] = {f"{point} {trial.labels[point]}": trial.killed_at(point) for point in points}
        rng, wanted = random.Random(1), len(points) + options.outside
        while len(outcomes) < wanted:
            seconds = rng.uniform(0.02, trial.seconds)
            if (same := trial.killed_after(seconds)) is not None:
                outcomes[f"after {seconds:.3f} s"] = same
        different = [name for name, same in outcomes.items() if not same]
    print(f"{len(outcomes)} kills, {len(outcomes) - len(different)} resumed to the same bits")
    for name in different:
        print(f"  different: {name}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
