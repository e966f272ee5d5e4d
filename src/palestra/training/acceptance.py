"""The acceptance list: what a machine must show before a long run on it is worth its price.

``palestra doctor --acceptance`` runs every check and ends with a table of passed, failed and not applicable, and a JSON to send
back. On a machine with GPUs the checks use them, with the model that the user names. On a CPU the same list runs with a tiny
model and gloo. What a CPU cannot show, such as NCCL, is not applicable there; it never counts as passed.

    python -m palestra.training.acceptance rank RANK MEETING MODEL DEVICE OUT     # one of two ranks; started by ``two_ranks``
    python -m palestra.training.acceptance train CONFIG FOLDER                   # a run that ``kill_and_resume`` kills
"""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import torch
import transformers
from torch.distributed.tensor import DTensor

from palestra.durable.ledger import read_ledger
from palestra.foundation.encoding import floats, ints
from palestra.inference.models import build_tiny
from palestra.recipes.config import TrainConfig
from palestra.recipes.learner import LearnerConfig, PackingConfig
from palestra.recipes.model import LoraSettings, ModelConfig
from palestra.recipes.reading import resolve
from palestra.training.export import export_model
from palestra.training.learner.batch import Batch
from palestra.training.learner.learner import Learner
from palestra.training.learner.loading import load_model
from palestra.training.learner.ranks import join
from palestra.training.record import read_metrics
from palestra.training.run import train
from palestra.trajectory import Completion, Segment, Span, StopReason, Task, Trajectory, Turn

__all__ = ["CHECKS", "AcceptanceRow", "Machine", "accept"]

GAME = "game:GuessTheNumber-v0-easy"
_STEPS = 20
_RISE = 0.05
"""By how much the mean reward of the last three steps must exceed that of the first three."""
_SAME = 1e-4
"""Largest difference of log-probabilities, in nats, that counts as the same in float32."""
_PATIENCE = 1800.0
"""Seconds that a child process may take."""
_PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40": 181e12, "4090": 165e12, "3090": 71e12}
"""Dense bfloat16 operations per second, by a part of the device's name."""

Outcome = Literal["passed", "failed", "not applicable"]


class AcceptanceRow(NamedTuple):
    """One line of the table."""

    name: str
    outcome: Outcome
    detail: str
    seconds: float


class NotApplicable(Exception):
    """The machine cannot show it. The message says why."""


class Missed(Exception):
    """The check ran and its bar was missed. The message has the figure."""


@dataclass(frozen=True)
class Machine:
    """What the checks run on."""

    scratch: Path
    asked: str | None = None
    """The model that the user named; by default a tiny one, which is built."""

    @property
    def device(self) -> str:
        """``cuda`` if there is a GPU."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    @cached_property
    def model(self) -> str:
        """The path or name of the model."""
        return self.asked or str(build_tiny(self.scratch / "tiny", envs="game:GuessTheNumber*"))

    @cached_property
    def trained(self) -> Path:
        """The folder of the run that ``learning`` made, for the checks after it."""
        return self.scratch / "learning"

    def settings(self, **changes: Any) -> ModelConfig:
        """The configuration of the model on this device."""
        return ModelConfig(self.model, device=self.device, **changes)


def accept(machine: Machine, say: Callable[[AcceptanceRow], None] = lambda _: None) -> list[AcceptanceRow]:
    """Run every check, in order, and return the table. ``say`` is called with each row when it is known."""
    rows = []
    for name, check in CHECKS.items():
        began = time.perf_counter()
        outcome: Outcome = "passed"
        try:
            detail = check(machine)
        except NotApplicable as reason:
            outcome, detail = "not applicable", str(reason)
        except Exception as error:  # noqa: BLE001 - whatever it is, the rows that are known must not be lost
            outcome, detail = "failed", f"{type(error).__name__}: {error}".partition("\n")[0]
        rows.append(AcceptanceRow(name, outcome, detail, time.perf_counter() - began))
        say(rows[-1])
    return rows


# ---------------------------------------------------------------------------------------------------------------- the model


def _loads(machine: Machine) -> str:
    network = load_model(machine.settings())
    count = sum(parameter.numel() for parameter in network.parameters())
    return f"{count / 1e6:.1f} M parameters on {machine.device}; the head agrees with the model's own"


def _flash(machine: Machine) -> str:
    if machine.device == "cpu":
        raise NotApplicable("flash attention needs a GPU")
    if importlib.util.find_spec("flash_attn") is None:
        raise NotApplicable("the package flash-attn is not installed")
    # Flash attention computes in 16 bits only, so the other side does as well.
    plain, flash = (_measured(machine, "packed", attention=kind, compute="bfloat16") for kind in ("sdpa", "flash_attention_2"))
    return _compared("flash attention and sdpa", plain, flash, 0.05)


def _packs(machine: Machine) -> str:
    return _compared("packed and alone", _measured(machine, "padded"), _measured(machine, "packed"), _SAME)


def _measured(machine: Machine, layout: Literal["padded", "packed"], **changes: Any) -> np.ndarray[Any, Any]:
    """The log-probabilities of a batch whose segments are alone (padded, one per pass) or packed."""
    network = load_model(machine.settings(**changes))
    positions = 1 if layout == "padded" else 10_000
    learner = Learner(network, LearnerConfig(packing=PackingConfig(positions, layout)))
    return learner.measure(_batch(_vocabulary(network))).logprobs


def _compared(what: str, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], limit: float) -> str:
    worst = float(np.abs(first - second).max())
    if not worst <= limit:
        raise Missed(f"{what} differ by {worst:.2g} nats; at most {limit:g} is allowed")
    return f"{what} differ by at most {worst:.1e} nats"


def _vocabulary(network: Any) -> int:
    return int(network.language_model.get_input_embeddings().weight.shape[0])


def _batch(vocabulary: int, episodes: int = 6) -> Batch:
    """Episodes of random tokens."""
    rng = np.random.default_rng(0)
    members = []
    for member in range(episodes):
        ids = rng.integers(1, vocabulary, 24 + 8 * member)
        segment = Segment(ints(ids.tolist()), (Span(8, len(ids), 0, 0),), floats(np.full(len(ids) - 8, -1.0)))
        turn = Turn("o", Completion("a"), 1.0)
        members.append(Trajectory(Task(GAME, 0), StopReason.TERMINATED, turns=(turn,), segments=(segment,), member=member))
    return Batch.of(members)


# ---------------------------------------------------------------------------------------------------------------- the ranks


def _two_ranks(machine: Machine) -> str:
    if machine.device == "cuda" and torch.cuda.device_count() < 2:
        raise NotApplicable("there is only one GPU")
    meeting = f"file://{machine.scratch / 'meeting'}"
    arguments = [[str(rank), meeting, machine.model, machine.device, str(machine.scratch / f"rank-{rank}")] for rank in (0, 1)]
    deadline = time.monotonic() + _PATIENCE
    children = [_Child(machine.scratch / f"rank-{rank}.log", "rank", *options) for rank, options in enumerate(arguments)]
    try:
        while sum(child.runs() for child in children):  # all are asked: if one fails, the other one would wait for it
            if time.monotonic() > deadline:
                raise Missed(f"two ranks made no gradient in {_PATIENCE:.0f} s")
            time.sleep(0.1)
    finally:
        for child in children:
            child.kill()
    together = msgspec.json.decode((machine.scratch / "rank-0").read_bytes(), type=dict[str, float])
    alone = _gradient(Learner(load_model(machine.settings()), LearnerConfig()))
    worst = max(abs(together[name] - norm) / max(norm, 1e-6) for name, norm in alone.items())
    if not worst <= 1e-3:
        raise Missed(f"the gradient of two ranks differs from that of one by {worst:.2g}")
    return f"{'NCCL' if machine.device == 'cuda' else 'gloo'}; norms of the gradients differ by at most {worst:.1e}"


def _gradient(learner: Learner) -> dict[str, float]:
    """The norm of every parameter's gradient on a batch with made-up advantages."""
    batch = _batch(_vocabulary(learner.network))
    total = len(batch.positions)
    signs = np.where(np.arange(total) % 3 == 0, -1.0, 1.0)
    learner.accumulate(replace(batch, old=learner.measure(batch).logprobs, advantages=signs))
    norms = {}
    for name, parameter in learner.network.named_parameters():
        if parameter.grad is not None:
            gradient = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
            norms[name] = float(gradient.norm())
    return norms


# --------------------------------------------------------------------------------------------------------- weights to engines


def _exports(machine: Machine) -> str:
    """The trained weights as a folder, which is also how servers get them."""
    folder = export_model(machine.trained, machine.scratch / "exported")
    base = transformers.AutoModelForCausalLM.from_pretrained(machine.scratch / "exported", dtype=torch.float32)
    (newest,) = sorted((machine.trained / "checkpoints").glob("step-*"))[-1:]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Guess a number", return_tensors="pt").input_ids
    with torch.no_grad():
        finite = bool(torch.isfinite(base(input_ids=ids).logits).all())
    if not finite:
        raise Missed("the exported model computes numbers that are not finite")
    return f"{newest.name} was exported, and transformers loads it"


def _nccl(machine: Machine) -> str:
    if machine.device == "cpu":
        raise NotApplicable("NCCL needs GPUs; the folder is checked by the row export")
    if not torch.distributed.is_nccl_available():
        raise Missed("torch has no NCCL")
    return f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))} is there; the row two ranks uses it"


def _lora(machine: Machine) -> str:
    if importlib.util.find_spec("peft") is None:
        raise NotApplicable("the package peft is not installed")
    network = load_model(machine.settings(lora=LoraSettings(rank=4)))
    learner = Learner(network, LearnerConfig(learning_rate=1e-2))
    batch = _batch(_vocabulary(network))
    before = learner.measure(batch).logprobs
    learner.update(replace(batch, old=before, advantages=np.ones(len(batch.positions))))
    moved = float(np.abs(learner.measure(batch).logprobs - before).max())
    with network.without_adapters():
        still = float(np.abs(learner.measure(batch).logprobs - before).max())
    if not (moved > 0.0 and still <= _SAME):
        raise Missed(f"an update moved the policy by {moved:.2g} and the frozen model by {still:.2g} nats")
    return f"an update moved the policy by {moved:.2g} nats and left the frozen model alone"


def _server(machine: Machine) -> str:
    raise NotApplicable('needs a running vLLM or SGLang server: start a run with engine.kind = "vllm" to try it')


# ------------------------------------------------------------------------------------------------------------------ the runs


def _kills_and_resumes(machine: Machine) -> str:
    config = _short_run(machine)
    killed = machine.scratch / "killed"
    file = machine.scratch / "killed.json"
    file.write_bytes(msgspec.json.encode(config))
    deadline = time.monotonic() + _PATIENCE
    child = _Child(machine.scratch / "killed.log", "train", str(file), str(killed))
    try:
        while len(read_metrics(killed) if (killed / "metrics.jsonl").exists() else []) < 3:
            if not child.runs():
                raise Missed("the run ended before it could be killed")
            if time.monotonic() > deadline:
                raise Missed(f"the run made no three steps in {_PATIENCE:.0f} s")
            time.sleep(0.05)
    finally:
        child.kill()
    notes: list[str] = []
    train(config, killed, check=False, say=notes.append)
    audit = read_ledger(killed / "ledger").audit()
    if not (audit.balanced and audit.issued == config.steps * config.play.tasks * config.play.group_size):
        raise Missed(f"the ledger does not add up after the resume: {audit}")
    if machine.device == "cuda":  # kernels on a GPU do not always add in the same order
        return f"killed by SIGKILL; {notes[0]}; every episode is accounted for once"
    train(config, machine.scratch / "whole", check=False)
    ledgers = [(machine.scratch / name / "ledger").read_bytes() for name in ("killed", "whole")]
    if ledgers[0] != ledgers[1] or _weights(killed) != _weights(machine.scratch / "whole"):
        raise Missed("the resumed run differs from an uninterrupted one")
    return f"killed by SIGKILL; {notes[0]}; same ledger and weights, bit for bit, as an uninterrupted run"


def _short_run(machine: Machine) -> TrainConfig:
    data = {
        "model": {"path": machine.model, "device": machine.device},
        "envs": {GAME: 1.0},
        "steps": 6,
        "play": {"tasks": 2, "group_size": 2, "concurrency": 1, "max_tokens": 6},
        "engine": {"batch": 1, "rows": 1},
        "learner": {"learning_rate": 1e-4},
        "checkpoint_every": 2,
    }
    return msgspec.convert(data, TrainConfig)


def _weights(run: Path) -> Mapping[str, str]:
    """The hashes of the newest checkpoint's tensors."""
    newest = max((run / "checkpoints").glob("step-*"))
    _, _, body = (newest / "manifest.json").read_bytes().partition(b"\n")
    files: dict[str, Any] = msgspec.json.decode(body)["files"]
    return {name: entry["sha256"] for name, entry in files.items() if name.endswith(".safetensors")}


def _learns(machine: Machine) -> str:
    small = machine.device == "cpu" and machine.asked is None
    wanted = [f"steps={_STEPS}", f"checkpoint_every={_STEPS}"]
    if small:
        config = resolve("cpu/guess", [*wanted, "entropy.start=0.03", "engine.batch=128"])
    else:
        changes = [f"model.path={machine.model}", f"model.device={machine.device}", "warm_start=none", "play.max_tokens=256"]
        changes += [f"envs={{{GAME!r} = 1.0}}", "variants=none", "minibatches=2", "epochs=1", "entropy=none"]
        config = resolve("cpu/guess", [*wanted, *changes, "learner.learning_rate=2e-6", "learner.decay=none"])
    train(config, machine.trained, check=False)
    rewards = [line["reward"] for line in read_metrics(machine.trained)]
    first, last = float(np.mean(rewards[:3])), float(np.mean(rewards[-3:]))
    if not last >= first + _RISE:
        raise Missed(f"mean reward {first:.3f} in the first three of {len(rewards)} steps and {last:.3f} in the last three")
    return f"mean reward {first:.3f} in the first three of {len(rewards)} steps, {last:.3f} in the last three"


def _speed(machine: Machine) -> str:
    lines = read_metrics(machine.trained) if (machine.trained / "metrics.jsonl").exists() else []
    if not lines:
        raise Missed("there is no run to measure: the row learning failed")
    rate = float(np.median([line["tokens_per_second"] for line in lines[1:]]))
    peak = None
    if machine.device == "cuda":
        name = torch.cuda.get_device_name()
        peak = next((flops for part, flops in _PEAK_FLOPS.items() if part in name), None)
    if peak is None:
        return f"{rate:.0f} sampled tokens per second; MFU is not known for this device"
    learned = sum(line["tokens"] for line in lines[1:]) / sum(line["seconds/learn"] for line in lines[1:])
    count = sum(p.numel() for p in load_model(machine.settings()).parameters())
    return f"{rate:.0f} sampled tokens per second; MFU of the updates at least {6 * count * learned / peak:.1%}"


CHECKS: Mapping[str, Callable[[Machine], str]] = {
    "load": _loads,
    "flash attention": _flash,
    "packing": _packs,
    "two ranks": _two_ranks,
    "LoRA": _lora,
    "kill and resume": _kills_and_resumes,
    "learning": _learns,
    "tokens per second": _speed,
    "export": _exports,
    "NCCL": _nccl,
    "LoRA swap on a server": _server,
    "sleep of a server": _server,
}
"""The list, in the order in which it is run."""


# ------------------------------------------------------------------------------------------------------------------- children


class _Child:
    """A process of this module. Its messages go to the file ``log``: a pipe that is not read would stop it when it is full."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "palestra.training.acceptance", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
        with log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)

    def runs(self) -> bool:
        """Whether the process still runs. Raise ``Missed`` if it has failed."""
        code = self._process.poll()
        if code:
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise Missed(f"a process ended with code {code}: {last[0]}")
        return code is None

    def kill(self) -> None:
        """End the process by SIGKILL if it runs."""
        self._process.kill()
        self._process.wait()


def _main(arguments: Sequence[str]) -> None:
    torch.set_num_threads(1)
    kind, *rest = arguments
    if kind == "train":
        train(msgspec.json.decode(Path(rest[0]).read_bytes(), type=TrainConfig), rest[1], check=False)
        return
    rank, meeting, model, device, out = rest
    join(int(rank), 2, meeting, device)
    if device == "cuda":
        torch.cuda.set_device(int(rank))
    norms = _gradient(Learner(load_model(ModelConfig(model, device=device)), LearnerConfig()))
    Path(out).write_bytes(msgspec.json.encode(norms))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    _main(sys.argv[1:])
