"""AdamW, with its moments beside the parameters or in the memory of the host.

The moments take twice the memory of the trained weights and are needed only while an update is made. ``HostAdamW`` keeps them
on the host. An update copies the moments of one parameter at a time to the parameter's device, makes the step there, and copies
them back. The arithmetic is that of torch's fused AdamW, so a run gives the same weights with and without it.
"""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim.adamw import AdamW, adamw

from palestra.training.learner.state import TensorRows, rows_of

__all__ = ["MOMENTS", "HostAdamW", "fresh_state", "moment_rows"]

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps per parameter."""


def fresh_state(optimizer: AdamW, parameter: Tensor) -> dict[str, Tensor]:
    """Return the state of a parameter before its first update, in the place where ``optimizer`` keeps it.

    The step count is a plain number on every rank; the moments are sharded like the parameter.
    """
    if isinstance(optimizer, HostAdamW):
        return optimizer.fresh_state(parameter)
    count = torch.zeros((), dtype=torch.float32, device=parameter.device)
    return dict(zip(MOMENTS, (count, torch.zeros_like(parameter), torch.zeros_like(parameter)), strict=True))


def moment_rows(moment: Tensor, parameter: Tensor) -> TensorRows:
    """Return the rows of a moment of ``parameter`` that this rank holds. On the host, a moment is these rows alone."""
    if isinstance(moment, DTensor) or not moment.dim() or not isinstance(parameter, DTensor):
        return rows_of(moment)
    return rows_of(parameter)._replace(rows=moment)


class HostAdamW(AdamW):
    """AdamW whose moments are in the memory of the host. They are plain tensors: the rows that this rank holds."""

    def fresh_state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return zeros on the host, in memory that a GPU copies from without a detour if the parameter is on one."""
        rows = _local(parameter)
        kept: dict[str, Any] = {"dtype": rows.dtype, "device": "cpu", "pin_memory": rows.device.type == "cuda"}
        moments = (torch.zeros(rows.shape, **kept) for _ in range(2))
        return dict(zip(MOMENTS, (torch.zeros((), dtype=torch.float32), *moments), strict=True))

    def step(self, closure: Any = None) -> Any:
        """Make one update. A ``closure`` is not supported."""
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        if parameter not in self.state:
            self.state[parameter] = self.fresh_state(parameter)
        state, rows = self.state[parameter], _local(parameter)
        # Copied even if the device is the host: then a CPU shows whether everything is copied back.
        count, first, second = (state[key].to(rows.device, copy=True) for key in MOMENTS)
        adamw(
            [rows],
            [_local(parameter.grad)],
            [first],
            [second],
            [],
            [count],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        for key, value in zip(MOMENTS, (count, first, second), strict=True):
            state[key].copy_(value)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
