"""Batches to weights: measure what the policy says, update it, save it, and take it up again.

One process or many run the same code. Each rank holds the whole batch (token arrays are small), computes its share of the
micro-batches, and sums: losses carry their global weights, so gradients are SUMMED over micro-batches and ranks and nothing is
averaged. A micro-batch without a sampled token still goes forward and backward, because the other ranks wait for it.

A step whose gradient is not finite is skipped and counted; the weights are as they were before it.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.tensor import DTensor

from palestra.errors import UsageError
from palestra.training.batch import Batch, MicroBatch, PackingConfig, micro_batch, plan, token_weights, value_weights
from palestra.training.groups import Array
from palestra.training.loss import LossConfig, PolicyTokens, ValueTokens, policy_loss, value_loss
from palestra.training.model import ActorCritic, Inputs, Outputs, full_weights, shard

__all__ = ["Learner", "LearnerConfig", "Measured"]


class LearnerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The optimiser and the size of a pass."""

    learning_rate: Annotated[float, msgspec.Meta(gt=0.0)] = 1e-6
    """Constant between the warm-up and the decay."""
    warmup: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Updates over which the rate rises linearly from 0."""
    decay: tuple[int, int] | None = None
    """From which update to which the rate falls linearly to 0; a run has steps × epochs × minibatches of them."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    gradient_clip: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0
    """The largest norm of the whole gradient."""
    temperature: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0
    """That of sampling: the logits are divided by it here too."""
    packing: PackingConfig = PackingConfig()
    loss: LossConfig = LossConfig()

    def __post_init__(self) -> None:
        if self.decay is not None and not 0 <= self.decay[0] < self.decay[1]:
            raise ValueError(f"decay is from one update to a later one, got {list(self.decay)}")


@dataclass(frozen=True, eq=False)
class Measured:
    """What the network says of a batch, without learning from it."""

    logprobs: Array
    """(T)."""
    values: Array | None
    """The critic's value before each sampled token (T)."""
    final_values: Array | None
    """The critic's value after each episode (E)."""


class Learner:
    """A network, its optimiser, and the number of updates made."""

    def __init__(self, network: ActorCritic, config: LearnerConfig, *, reference: ActorCritic | None = None) -> None:
        self.config = config
        self.network = network
        self.reference = reference
        self.ranks = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        for module in (network, reference):
            if module is not None and self.ranks > 1:
                shard(module)
        if reference is not None:
            reference.requires_grad_(False).eval()
        self.parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )
        self.updates = 0
        self.device = self.parameters[0].device

    # ------------------------------------------------------------------------------------------------------------ measuring

    def measure(self, batch: Batch) -> Measured:
        """Log-probabilities and values of ``batch`` under the present weights."""
        return self._measure(self.network, batch)

    def measure_reference(self, batch: Batch) -> Array:
        """Log-probabilities of ``batch`` under the reference: the frozen copy, or the network without its adapters."""
        if self.reference is not None:
            return self._measure(self.reference, batch).logprobs
        if self.network.config.lora is None:
            raise UsageError("a KL needs a reference: train by LoRA, or give the learner a frozen copy of the network")
        with self.network.without_adapters():
            return self._measure(self.network, batch).logprobs

    def _measure(self, network: ActorCritic, batch: Batch) -> Measured:
        total, critic = len(batch.positions), network.critic is not None
        logprobs, values, ends = np.zeros(total), np.zeros(total), np.zeros(len(batch.ids))
        network.eval()
        for micro in self._passes(batch):
            with torch.no_grad():
                out: Outputs = network(Inputs.of(micro, self.device), self.config.temperature)
            logprobs[micro.tokens] = out.statistics.logprobs.cpu().numpy()
            if out.values is not None and out.end_values is not None:
                values[micro.tokens] = out.values.cpu().numpy()
                ends[list(micro.chosen)] = out.end_values.cpu().numpy()
        # Each entry was filled by one rank and is zero elsewhere, so the sum is exact.
        logprobs, values, ends = (self._summed(array) for array in (logprobs, values, ends))
        finals = ends[[batch.last_segment_of(e) for e in range(batch.count)]] if critic else None
        return Measured(logprobs, values if critic else None, finals)

    def _passes(self, batch: Batch) -> Iterator[MicroBatch]:
        for members in plan(batch, self.ranks, self.config.packing)[self.rank]:
            yield micro_batch(batch, members, self.config.packing.layout)

    def _summed(self, array: Array) -> Array:
        if self.ranks == 1:
            return array
        tensor = torch.from_numpy(array).to(self.device)
        dist.all_reduce(tensor)
        summed: Array = tensor.cpu().numpy()
        return summed

    # ------------------------------------------------------------------------------------------------------------- learning

    def update(self, batch: Batch, loss: LossConfig | None = None) -> dict[str, float]:
        """One optimiser step on the whole of ``batch``, in as many passes as it takes. Returns means over all its tokens.

        ``loss`` replaces the configured one, for a coefficient that is annealed by step.
        """
        metrics = self.accumulate(batch, loss)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.gradient_clip)
        norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        finite = math.isfinite(norm)
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = self._learning_rate()
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        return {**metrics, "gradient_norm": norm, "skipped": float(not finite)}

    def accumulate(self, batch: Batch, loss: LossConfig | None = None) -> dict[str, float]:
        """Add the gradient of the loss of ``batch`` to the parameters' gradients."""
        if batch.old is None or batch.advantages is None:
            raise UsageError("an update needs advantages and the old log-probs: measure the batch and give it both first")
        config = loss or self.config.loss
        weights = token_weights(batch, config.aggregation, config.constant)
        totals: dict[str, Tensor] = {}
        self.network.train()
        for micro in self._passes(batch):
            out = self.network(Inputs.of(micro, self.device), self.config.temperature, bool(config.entropy_coefficient))
            total, metrics = policy_loss(out.statistics, self._policy_tokens(batch, micro, weights), config)
            if out.values is not None:
                critic = value_loss(out.values, self._value_tokens(batch, micro), config)
                total, metrics = total + config.value_coefficient * critic, {**metrics, "value_loss": critic.detach()}
            total.backward()
            for name, value in {**metrics, "loss": total.detach()}.items():
                totals[name] = totals.get(name, 0.0) + value.double()
        names = sorted(totals)
        values = self._summed(torch.stack([totals[name] for name in names]).cpu().numpy())
        return dict(zip(names, values.tolist(), strict=True))

    def _value_tokens(self, batch: Batch, micro: MicroBatch) -> ValueTokens:
        total = len(batch.positions)
        return ValueTokens(
            old_values=self._tensor(np.zeros(total) if batch.values is None else batch.values, micro),
            targets=self._tensor(np.full(total, np.nan) if batch.targets is None else batch.targets, micro),
            weights=self._tensor(value_weights(batch), micro),
        )

    def _policy_tokens(self, batch: Batch, micro: MicroBatch, weights: Array) -> PolicyTokens:
        assert batch.old is not None
        assert batch.advantages is not None
        return PolicyTokens(
            old=self._tensor(batch.old, micro),
            sampled=self._tensor(batch.sampled, micro),
            advantages=self._tensor(batch.advantages, micro),
            weights=self._tensor(weights, micro),
            shares=self._tensor(np.full(len(weights), 1.0 / max(len(weights), 1)), micro),
            segments=torch.from_numpy(micro.segments).to(self.device),
            reference=None if batch.reference is None else self._tensor(batch.reference, micro),
        )

    def _tensor(self, array: Array, micro: MicroBatch) -> Tensor:
        return torch.from_numpy(array[micro.tokens]).float().to(self.device)

    def _learning_rate(self) -> float:
        """That of the next update."""
        risen = (self.updates + 1) / self.config.warmup if self.config.warmup else 1.0
        begin, end = self.config.decay or (self.updates, self.updates + 1)
        left = (end - self.updates) / (end - begin)
        return self.config.learning_rate * min(risen, 1.0) * min(max(left, 0.0), 1.0)

    # ----------------------------------------------------------------------------------------------------- saving and loading

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The policy's whole weights for an inference engine, adapters merged in. All ranks must iterate."""
        return full_weights(self.network)

    def save(self, folder: Path) -> None:
        """Write weights, optimiser, update count and generator into ``folder``. All ranks must call it."""
        model, optimizer = get_state_dict(self.network, self.optimizer, options=_OPTIONS)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer, "updates": torch.tensor(self.updates)}
        with _alone_on_purpose():
            dcp.save(state, checkpoint_id=folder / "learner", no_dist=self.ranks == 1)
        torch.save(torch.get_rng_state(), folder / f"generator-{self.rank:05d}.pt")
        self._wait()

    def load(self, folder: Path) -> None:
        """Take up what ``save`` wrote. With more ranks than then, the new ones keep their generator as it is."""
        model, optimizer = get_state_dict(self.network, self.optimizer, options=_OPTIONS)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer, "updates": torch.tensor(0)}
        with _alone_on_purpose():
            dcp.load(state, checkpoint_id=folder / "learner", no_dist=self.ranks == 1)
        set_state_dict(
            self.network,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=_OPTIONS,
        )
        self.updates = int(state["updates"])
        generator = folder / f"generator-{self.rank:05d}.pt"
        if generator.exists():
            torch.set_rng_state(torch.load(generator, weights_only=True))
        self._wait()

    def _wait(self) -> None:
        if self.ranks > 1:
            dist.barrier()


@contextmanager
def _alone_on_purpose() -> Iterator[None]:
    """Silence the remark that a single process saves as a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


# Frozen weights are those the run started from: adapters alone make a small checkpoint.
_OPTIONS = StateDictOptions(ignore_frozen_params=True, strict=False)
