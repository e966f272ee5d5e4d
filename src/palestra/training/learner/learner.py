"""Batches to weights: measure a batch, update the network, save and load the state.

One process or many run the same code. Each rank holds the whole batch (token arrays are small) and computes its share of the
micro-batches. Losses carry their global weights, so gradients are SUMMED over micro-batches and ranks, and nothing is averaged.
A micro-batch without a sampled token still makes a forward and a backward pass, because the other ranks wait for it.

A segment whose log-probabilities are not finite, under the policy or the reference, is left out of the loss and counted. If the
update itself finds it, the pass is made again without it. An update whose gradient is not finite all the same is skipped and
counted. It leaves the weights unchanged.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from palestra.durable.checkpoint import FileEntry
from palestra.errors import SchemaError, UsageError
from palestra.recipes.algorithms import LossConfig
from palestra.recipes.learner import SCHEDULE, LearnerConfig
from palestra.training.algorithms.groups import Array
from palestra.training.algorithms.loss import PolicyTokens, ValueTokens, policy_loss, value_loss
from palestra.training.algorithms.validity import MISMATCH
from palestra.training.learner.batch import Batch, MicroBatch, micro_batch, plan, token_weights, value_weights
from palestra.training.learner.checks import check_context, check_packing
from palestra.training.learner.compiling import compile_layers
from palestra.training.learner.context import context_group
from palestra.training.learner.model import ActorCritic, Inputs, Outputs, shard
from palestra.training.learner.optimizer import MOMENTS, HostAdamW, fresh_state, moment_rows
from palestra.training.learner.state import GENERATOR, StateReader, TensorRows, rows_of, write_state
from palestra.training.learner.weights import checkpoint_weights, index_weights, memory_weights, write_adapters, write_weights

__all__ = ["Learner", "Measured", "unsound_segments"]


def linear(progress: float, *, floor: float = 0.0) -> float:
    return floor + (1.0 - floor) * (1.0 - progress)


def cosine(progress: float, *, floor: float = 0.0) -> float:
    return floor + (1.0 - floor) * (1.0 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True, eq=False)
class Measured:
    """What the network computes for a batch, without learning from it."""

    logprobs: Array
    """(T)."""
    entropies: Array
    """Of the policy at each sampled token (T)."""
    values: Array | None
    """The critic's value before each sampled token (T)."""
    final_values: Array | None
    """The critic's value after each episode (E)."""
    computed: npt.NDArray[np.bool_] | None = None
    """The tokens of which the network has computed something (T); ``None`` if these are all. The others are NaN. A computed
    number may be NaN, too, and that is a fault."""


class Learner:
    """A network, its optimizer, and the number of updates so far."""

    def __init__(
        self,
        network: ActorCritic,
        config: LearnerConfig,
        *,
        reference: ActorCritic | None = None,
        teacher: ActorCritic | None = None,
    ) -> None:
        """``reference`` and ``teacher`` are frozen: the one is for a KL, the other for distillation."""
        self.config = config
        self.network = network
        self.reference = reference
        self.teacher = teacher
        self.ranks = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.context = context_group(config.context_parallel)
        networks = [module for module in (network, reference, teacher) if module is not None]
        for module in networks:
            self._make_ready(module)
        for frozen in networks[1:]:
            frozen.requires_grad_(False).eval()
        self.parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        kind = HostAdamW if config.offload else torch.optim.AdamW
        self.optimizer = kind(
            self.parameters, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )
        self._schedule = SCHEDULE.load(config.schedule)
        self.updates = 0
        self.device = self.parameters[0].device
        self.measures_first = True
        """Whether batches are measured before they are learned from. A run with one update per step needs no pass for it: the
        old policy is that of the update's own forward pass."""
        self.seen: Measured | None = None
        """What the last update computed for its batch before it changed the weights, if that batch was not measured first.
        Episodes without an advantage need no pass."""

    def _make_ready(self, network: ActorCritic) -> None:
        """Check that ``network`` can be trained as configured, divide it among the ranks, and compile its layers."""
        # The checks come first: they compare passes of a few tokens with each other, and a compiled layer would be compiled for
        # their shapes.
        if self.config.packing.layout == "packed":
            check_packing(network)
        if self.context is not None:
            network.context = self.context
            check_context(network)
        if self.ranks > 1 and not isinstance(network, FSDPModule):  # what was read by rows is sharded already
            shard(network)
        sharded: object = network
        if isinstance(sharded, FSDPModule):
            # The checks made passes, after which FSDP keeps what is outside of the layers gathered. The optimizer must hold the
            # rows of this rank: the gathered tensors get no gradient.
            sharded.reshard()
        if network.config.compile:
            compile_layers(network, network.config.compile)

    # ------------------------------------------------------------------------------------------------------------ measuring

    def measure(self, batch: Batch) -> Measured:
        """Return log-probabilities and values of ``batch`` under the current weights."""
        return self._measure(self.network, batch)

    def measure_reference(self, batch: Batch) -> Array:
        """Return log-probabilities of ``batch`` under the reference: the frozen copy, or the network without its adapters."""
        if self.reference is not None:
            return self._measure_frozen(self.reference, batch)
        if self.network.config.lora is None:
            raise UsageError("a KL needs a reference: train by LoRA, or give the learner a frozen copy of the network")
        with self.network.without_adapters():
            return self._measure(self.network, batch).logprobs

    def measure_teacher(self, batch: Batch) -> Array:
        """Return log-probabilities of ``batch`` under the teacher."""
        assert self.teacher is not None, "the learner has no teacher"
        return self._measure_frozen(self.teacher, batch)

    def _measure_frozen(self, network: ActorCritic, batch: Batch) -> Array:
        logprobs = self._measure(network, batch).logprobs
        if isinstance(network, FSDPModule):
            network.reshard()  # FSDP waits for a backward pass, which a frozen network does not have
        return logprobs

    def _measure(self, network: ActorCritic, batch: Batch) -> Measured:
        total, critic = len(batch.positions), network.critic is not None
        logprobs, entropies, values, ends = (np.zeros(size) for size in (total, total, total, len(batch.ids)))
        network.eval()
        for micro in self._passes(batch):
            with torch.no_grad():
                out: Outputs = network(self._inputs(micro), self.config.temperature)
            logprobs[micro.tokens] = out.statistics.logprobs.cpu().numpy()
            entropies[micro.tokens] = out.statistics.entropy.cpu().numpy()
            if out.values is not None and out.end_values is not None:
                values[micro.tokens] = out.values.cpu().numpy()
                ends[list(micro.chosen)] = out.end_values.cpu().numpy()
        # One rank fills each entry and the others leave it 0, so the sum is exact.
        logprobs, entropies, values, ends = (self._summed(array) for array in (logprobs, entropies, values, ends))
        finals = ends[[batch.last_segment_of(e) for e in range(batch.count)]] if critic else None
        return Measured(logprobs, entropies, values if critic else None, finals)

    def _passes(self, batch: Batch) -> Iterator[MicroBatch]:
        together = self.config.context_parallel
        for members in plan(batch, self.ranks // together, self.config.packing)[self.rank // together]:
            yield micro_batch(batch, members, self.config.packing.layout)

    def _inputs(self, micro: MicroBatch) -> Inputs:
        return Inputs.of(micro, self.device, self.context)

    def _summed(self, array: Array) -> Array:
        if self.ranks == 1:
            return array
        tensor = torch.from_numpy(array).to(self.device)
        if self.context is not None and self.context.rank:
            tensor = torch.zeros_like(tensor)  # the ranks that divide a micro-batch have the same numbers: the first adds them
        dist.all_reduce(tensor)
        summed: Array = tensor.cpu().numpy()
        return summed

    # ------------------------------------------------------------------------------------------------------------- learning

    def update(self, batch: Batch, loss: LossConfig | None = None) -> dict[str, float]:
        """Make one optimizer step on ``batch``, in as many passes as it needs, and return means over all its tokens.

        ``loss`` replaces the configured loss, for example with an annealed coefficient.
        """
        metrics = self.accumulate(batch, loss)
        length = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.gradient_clip)
        norm = float(length.full_tensor() if isinstance(length, DTensor) else length)
        finite = math.isfinite(norm) and metrics["not_finite"] < 1.0
        rate = self._learning_rate()
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        return {**metrics, "gradient_norm": norm, "skipped": float(not finite), "learning_rate": rate}

    def accumulate(self, batch: Batch, loss: LossConfig | None = None) -> dict[str, float]:
        """Add the gradient of the loss of ``batch`` to the parameters' gradients.

        If ``batch`` has no old log-probs, those of this very pass are taken, and ``seen`` holds them afterwards.
        """
        if batch.advantages is None:
            raise UsageError("an update needs advantages: compute them and give them to the batch first")
        config, given = loss or self.config.loss, batch
        weights = token_weights(batch, config.aggregation, config.constant)
        if not (config.kl_coefficient or config.entropy_coefficient or self.network.critic is not None):
            batch, weights = _without_idle(batch, weights)
        totals: dict[str, Tensor] = {}
        logprobs, entropies = np.zeros(len(weights)), np.zeros(len(weights))
        self.seen = None
        self.network.train()
        broken, unsound = 0, unsound_segments(batch)
        for planned in self._passes(batch):
            micro = self._without(batch, planned, unsound)
            micro, out = self._sound_pass(batch, micro, bool(config.entropy_coefficient))
            broken += len(planned.chosen) - len(micro.chosen)
            for array, computed in ((logprobs, out.statistics.logprobs), (entropies, out.statistics.entropy)):
                array[planned.tokens] = np.nan
                array[micro.tokens] = computed.detach().cpu().numpy()
            tokens = self._policy_tokens(batch, micro, weights, out.statistics.logprobs.detach())
            total, metrics = policy_loss(out.statistics, tokens, config)
            if out.values is not None:
                critic = value_loss(out.values, self._value_tokens(batch, micro), config)
                total, metrics = total + config.value_coefficient * critic, {**metrics, "value_loss": critic.detach()}
            total.backward()
            for name, value in {**metrics, "loss": total.detach()}.items():
                totals[name] = totals.get(name, 0.0) + value.double()
        if batch.old is None:
            logprobs, entropies = (_spread(given, batch, self._summed(array)) for array in (logprobs, entropies))
            passed = None if batch is given else np.isin(given.episodes, _busy(given))
            self.seen = Measured(logprobs, entropies, None, None, passed)
        totals["not_finite"] = torch.tensor(broken, dtype=torch.float64, device=self.device)
        names = sorted(totals)
        values = self._summed(torch.stack([totals[name] for name in names]).cpu().numpy())
        means: dict[str, float] = dict(zip(names, values.tolist(), strict=True))
        # Divided after the sum over ranks, so that it is exactly 1 if no segment is left.
        return {**means, "not_finite": means["not_finite"] / max(len(np.unique(batch.segments)), 1)}

    def _sound_pass(self, batch: Batch, micro: MicroBatch, differentiable_entropy: bool) -> tuple[MicroBatch, Outputs]:
        """Make the forward pass of ``micro`` without the segments whose log-probabilities are not finite.

        To give these tokens the weight 0 is not enough: the gradient of a NaN is NaN, whatever it is multiplied with.
        """
        out = self.network(self._inputs(micro), self.config.temperature, differentiable_entropy)
        rows = micro.segments[~out.statistics.logprobs.detach().isfinite().cpu().numpy()]
        broken = {micro.chosen[row] for row in rows}
        if not self._summed(np.array([float(len(broken))]))[0]:
            return micro, out
        del out  # its activations would stay beside those of the second pass
        # All ranks make the pass again, because the passes of all ranks have collective calls.
        micro = self._without(batch, micro, broken)
        return micro, self.network(self._inputs(micro), self.config.temperature, differentiable_entropy)

    def _without(self, batch: Batch, micro: MicroBatch, segments: set[int]) -> MicroBatch:
        if segments.isdisjoint(micro.chosen):
            return micro
        return micro_batch(batch, [s for s in micro.chosen if s not in segments], self.config.packing.layout)

    def _value_tokens(self, batch: Batch, micro: MicroBatch) -> ValueTokens:
        total = len(batch.positions)
        return ValueTokens(
            old_values=self._tensor(np.zeros(total) if batch.values is None else batch.values, micro),
            targets=self._tensor(np.full(total, np.nan) if batch.targets is None else batch.targets, micro),
            weights=self._tensor(value_weights(batch), micro),
        )

    def _policy_tokens(self, batch: Batch, micro: MicroBatch, weights: Array, now: Tensor) -> PolicyTokens:
        """``now`` are the log-probabilities of this pass."""
        assert batch.advantages is not None
        sampled, segments = self._tensor(batch.sampled, micro), torch.from_numpy(micro.segments).to(self.device)
        share = self._tensor(weights, micro)
        if batch.old is None:
            share = torch.where(_mismatched(now, sampled, segments), 0.0, share)
        return PolicyTokens(
            old=now if batch.old is None else self._tensor(batch.old, micro),
            sampled=sampled,
            advantages=self._tensor(batch.advantages, micro),
            weights=share,
            shares=self._tensor(np.full(len(weights), 1.0 / max(len(weights), 1)), micro),
            segments=segments,
            reference=None if batch.reference is None else self._tensor(batch.reference, micro),
        )

    def _tensor(self, array: Array, micro: MicroBatch) -> Tensor:
        return torch.from_numpy(array[micro.tokens]).float().to(self.device)

    def _learning_rate(self) -> float:
        """The learning rate of the next update."""
        risen = (self.updates + 1) / self.config.warmup if self.config.warmup else 1.0
        rate = self.config.learning_rate * min(risen, 1.0)
        if self.config.decay is None:
            return rate
        begin, end = self.config.decay
        progress = min(max((self.updates - begin) / (end - begin), 0.0), 1.0)
        factor = float(self._schedule(progress))
        if not 0.0 <= factor <= 1.0:
            raise UsageError(f"learner.schedule must return a factor from 0 to 1, got {factor} at progress {progress}")
        return rate * factor

    def release(self) -> None:
        """Give cached memory of the GPU back to other processes. All ranks must call it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    # ----------------------------------------------------------------------------------------------------- saving and loading

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the policy's full weights for an engine in this process, with adapters merged. All ranks must iterate."""
        return memory_weights(self.network)

    def checkpoint_weights(self, dtype: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the policy's full weights in ``dtype`` under the names of the checkpoint. All ranks must iterate."""
        return checkpoint_weights(self.network, getattr(torch, dtype))

    def write_weights(self, folder: Path, dtype: str) -> None:
        """Write the policy's weights into ``folder`` as transformers would save them, with adapters merged.

        All ranks must call it, and each writes a part.
        """
        write_weights(self.network, folder, getattr(torch, dtype), self.rank, self.ranks)
        self._wait()
        if self.rank == 0:
            index_weights(folder)

    def write_adapters(self, folder: Path, dtype: str) -> None:
        """Write the adapters alone into ``folder``, as PEFT saves them. All ranks must call it."""
        write_adapters(self.network, folder, getattr(torch, dtype), self.rank)
        self._wait()

    def save(self, folder: Path) -> dict[str, FileEntry]:
        """Write weights, optimizer, update count and random generator into ``folder``. All ranks must call it.

        Returns, on rank 0, the hashes of the tensor files, computed while they were written. The other ranks must not read
        ``folder`` after they have met: rank 0 may have renamed it by then.
        """
        write_state(folder, self.rank, self.ranks, self.updates, self._state())
        self._wait()
        return StateReader(folder).files if self.rank == 0 else {}

    def load(self, folder: Path) -> None:
        """Restore what ``save`` wrote. If there are more ranks now, the new ranks keep their random generator."""
        saved = StateReader(folder)
        names = saved.names()
        for name, parameter in self._trained():
            self.optimizer.state.pop(parameter, None)
            if f"optimizer.{name}.{MOMENTS[0]}" in names:
                self.optimizer.state[parameter] = fresh_state(self.optimizer, parameter)
        state = self._state()
        if state.keys() != names:
            other = ", ".join(sorted(state.keys() ^ names)[:3])
            raise SchemaError(f"{folder} holds the state of another network: the two differ in {other}")
        for name in state.keys() - {GENERATOR}:
            saved.fill(name, state[name])
        self.updates = saved.updates
        generator = saved.own(GENERATOR, self.rank)
        if generator is not None:
            torch.set_rng_state(generator)
        self._wait()

    def _trained(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, p) for name, p in self.network.named_parameters() if p.requires_grad)

    def _state(self) -> dict[str, TensorRows]:
        """Everything that an update changes. Frozen weights are left out: they are those of the initial model."""
        kept = self.network.state_dict().keys()
        state = {f"model.{name}": rows_of(parameter) for name, parameter in self._trained()}
        state |= {f"model.{name}": rows_of(buffer) for name, buffer in self.network.named_buffers() if name in kept}
        for name, parameter in self._trained():
            moments = self.optimizer.state.get(parameter, {})
            state |= {f"optimizer.{name}.{key}": moment_rows(value, parameter) for key, value in moments.items()}
        return {**state, GENERATOR: rows_of(torch.get_rng_state())}

    def _wait(self) -> None:
        if self.ranks > 1:
            dist.barrier()


def unsound_segments(batch: Batch) -> set[int]:
    """Return the segments whose log-probabilities under the reference are not finite. An update leaves them out."""
    if batch.reference is None:
        return set()
    return set(batch.segments[~np.isfinite(batch.reference)].tolist())


def _busy(batch: Batch) -> npt.NDArray[np.int64]:
    """The episodes that have an advantage other than 0."""
    assert batch.advantages is not None
    return np.unique(batch.episodes[batch.advantages != 0.0])


def _without_idle(batch: Batch, weights: Array) -> tuple[Batch, Array]:
    """Leave out the episodes whose advantages are all 0: nothing but the policy's loss is computed, and there it is 0."""
    busy = _busy(batch)
    if len(busy) in (0, batch.count):  # 0: every rank still makes a pass
        return batch, weights
    return batch.take(busy.tolist()), weights[np.isin(batch.episodes, busy)]


def _spread(batch: Batch, part: Batch, values: Array) -> Array:
    """The values of the tokens of ``part``, which has some episodes of ``batch``, in the places of ``batch``; NaN elsewhere."""
    if part is batch:
        return values
    spread = np.full(len(batch.positions), np.nan)
    spread[np.isin(batch.episodes, _busy(batch))] = values
    return spread


def _mismatched(now: Tensor, sampled: Tensor, segments: Tensor) -> Tensor:
    """Which tokens belong to a segment that another distribution sampled, by the limit for whole episodes.

    A batch that was measured first has no such episodes: they were removed with their groups in view.
    """
    if not len(segments):
        return torch.zeros_like(segments, dtype=torch.bool)
    empty = now.new_zeros(int(segments.max()) + 1)
    distance = empty.index_add(0, segments, (now - sampled).abs())
    counts = empty.index_add(0, segments, torch.ones_like(now))
    return (distance / counts.clamp(min=1) > MISMATCH)[segments]
