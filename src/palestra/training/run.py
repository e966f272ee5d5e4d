"""``train()``: claim the folder, build, check, train. ``palestra train`` is the same on the command line.

The folder is claimed before anything is built. So two processes cannot train in one folder, and a folder that holds a run with
another configuration is refused. If a folder holds a ``config.json`` but no finished step, the new run takes it over and
removes the rest.

Ctrl-C ends the run after the current step, with a checkpoint. A second Ctrl-C raises ``KeyboardInterrupt`` at once. SIGTERM
(``kill``, ``scancel``, ``docker stop``) does the same. SIGHUP (a closed terminal) never ends the run at once, because shell and
kernel may both send it. In all cases the same call resumes the run, and the servers that the run has started end with it.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palestra.adapters.loop_thread import run_anywhere
from palestra.durable import Identity, claim
from palestra.inference.rendering.vocabulary import VOCABULARY
from palestra.inference.servers.publishing import WEIGHTS
from palestra.recipes.config import TrainConfig
from palestra.recipes.reading import FREE, kept
from palestra.training.assembly import assemble
from palestra.training.heldout import EVALUATIONS
from palestra.training.opponents import OPPONENTS
from palestra.training.parts import register_variants
from palestra.training.preflight import examine
from palestra.training.tasks import data_digests
from palestra.training.trainer import Trainer
from palestra.training.warm_start import WARM_START
from palestra.training.writers import writing

__all__ = ["checked", "claimed", "train"]

_RESULTS = "metrics.jsonl"
_HANGUP = getattr(signal, "SIGHUP", None)  # not on Windows
_ENDINGS = [signal.SIGTERM] if _HANGUP is None else [signal.SIGTERM, _HANGUP]
_LEFTOVERS = (WARM_START, f"{WARM_START}.part", "checkpoints", EVALUATIONS, WEIGHTS, OPPONENTS, VOCABULARY)
"""What a run without a finished step may have left in the folder. Another run must not use any of it."""


def train(
    config: TrainConfig,
    folder: str | Path,
    *,
    check: bool = True,
    show: Callable[[Mapping[str, Any]], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Trainer:
    """Train ``config`` in ``folder`` to its last step, or resume it there. Blocks until the run ends; also works in a notebook.

    Args:
        config: The run, for example from ``resolve``. It names parts of your own by ``palestra.training.hook``.
        folder: The run folder. It must be empty, absent, or hold this very run. A run that it holds is resumed.
        check: Whether to try model, chat template and environments together before the first step.
        show: Called with the metrics of every step, beside the ``writers`` of the configuration.
        say: Called with every note for the user, such as the step from which the run resumes.

    Returns:
        The trainer. Its ``stop_requested`` is true if Ctrl-C ended the run before the last step.

    Raises:
        UsageError: The folder holds another run, another process uses it, a part that the configuration names cannot be
            imported, or the check found an error that would make the run useless.

    Example:
        >>> from palestra.training import resolve, train
        >>> config = resolve("cpu/guess", ["steps=20", "advantage.method=grpo"])
        >>> trainer = train(config, "runs/guess", show=lambda metrics: print(metrics["step"], metrics["reward"]))

    """
    with claimed(config, Path(folder)), writing(config, Path(folder), show) as write:
        trainer = assemble(config, Path(folder), show=write, say=say)
        try:
            run_anywhere(_run(trainer, check=check))
        finally:
            trainer.ledger.close()
    return trainer


@contextmanager
def claimed(config: TrainConfig, folder: Path) -> Iterator[None]:
    """Hold ``folder`` alone for the run ``config``.

    Raise ``UsageError`` if it holds another run, if the run's data has changed, or if another process has the folder.
    """
    register_variants(config.variants)
    identity = Identity(
        run="training",
        config=kept(config, data_digests(config)),
        changeable=FREE,
        results=(_RESULTS,),
        others=("trajectories.jsonl", "ledger", VOCABULARY),
        folders=[name for name in _LEFTOVERS if name != VOCABULARY],
    )
    with claim(folder, identity) as held:
        if held.replaced:
            for name in _LEFTOVERS:
                (held.inside / name).remove()
        yield


async def checked(trainer: Trainer) -> None:
    """Run the preflight, unless the run has a checkpoint and so was checked before. Raise ``UsageError`` if it fails."""
    if not trainer.checkpoints.paths():
        await examine(trainer, trainer.say)


async def _run(trainer: Trainer, *, check: bool) -> None:
    try:
        if check:
            await checked(trainer)
        await _train_until_stopped(trainer)
    finally:
        await trainer.close()


async def _train_until_stopped(trainer: Trainer) -> None:
    loop = asyncio.get_running_loop()

    def leave(number: signal.Signals) -> None:
        if trainer.stop_requested:
            if number == _HANGUP:
                return
            raise KeyboardInterrupt
        trainer.stop_requested = True
        trainer.say("stopping after this step. Press Ctrl-C again to stop at once")

    # What nohup ignores, and what the program of the caller handles, stays as it is.
    handled = [signal.SIGINT, *(number for number in _ENDINGS if signal.getsignal(number) == signal.SIG_DFL)]
    try:
        for number in handled:
            loop.add_signal_handler(number, leave, number)
    except (NotImplementedError, RuntimeError):  # not the main thread, or no signals: Ctrl-C then stops at once
        await trainer.train()
        return
    try:
        await trainer.train()
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
