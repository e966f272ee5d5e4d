"""On which GPUs the servers of a run go, so that none shares the GPU of the learner.

A process that was started with ``CUDA_VISIBLE_DEVICES`` counts its GPUs inside that list: ``cuda:0`` is the first of the list.
Servers get names out of the same list, because the variable that they are started with replaces it.
"""

import os

from palestra.errors import UsageError

__all__ = ["check_devices", "server_devices"]


def server_devices(device: str, replicas: int, chosen: tuple[str, ...]) -> list[str | None]:
    """Return ``CUDA_VISIBLE_DEVICES`` of each server; ``None`` leaves the variable as it is.

    Args:
        device: The device of the learner.
        replicas: The number of servers.
        chosen: What the recipe chooses; empty for one GPU per server after that of the learner.

    """
    own = _index(device)
    if chosen or own is None:
        return list(chosen) or [None] * replicas
    wanted = range(own + 1, own + 1 + replicas)
    visible = _visible()
    if visible is None:
        return [str(index) for index in wanted]
    if wanted.stop > len(visible):
        raise UsageError(
            f'CUDA_VISIBLE_DEVICES = "{",".join(visible)}" has {len(visible)} GPUs, but the learner on "{device}" and '
            f"{replicas} servers after it need {wanted.stop}: make more of them visible, or set engine.launch.devices"
        )
    return [visible[index] for index in wanted]


def check_devices(device: str, chosen: tuple[str, ...]) -> None:
    """Raise ``UsageError`` if one of the ``chosen`` places has the GPU of the learner."""
    own = _index(device)
    if own is None:
        return
    visible = _visible()
    name = str(own) if visible is None or own >= len(visible) else visible[own]
    for place in chosen:
        if name in place.split(","):
            raise UsageError(
                f'engine.launch.devices = "{place}" puts a server on GPU {name}, which is the learner\'s '
                f'(model.device = "{device}"): name other GPUs'
            )


def _index(device: str) -> int | None:
    """The learner's index among the GPUs that it sees; ``None`` on a CPU."""
    kind, _, index = device.partition(":")
    return int(index) if index.isdigit() else 0 if kind == "cuda" else None


def _visible() -> list[str] | None:
    """The names of the GPUs that this process may use; ``None`` if it may use all of them."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else [name.strip() for name in listed.split(",") if name.strip()]
