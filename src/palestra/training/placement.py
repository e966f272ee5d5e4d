"""The servers that a run starts: their command, and their GPUs, so that none shares the GPU of the learner unless it sleeps.

A process that was started with ``CUDA_VISIBLE_DEVICES`` counts its GPUs inside that list: ``cuda:0`` is the first of the list.
Servers get names out of the same list, because the variable that they are started with replaces it.
"""

import os
from typing import Annotated

import msgspec

from palestra.errors import UsageError

__all__ = ["Launch", "check_collective", "check_devices", "server_devices"]

_RANKS = (8, 16, 32, 64, 128, 256, 512)
"""The ranks of adapters that vLLM knows."""


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Servers that the run starts, restarts and stops."""

    replicas: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Number of servers."""
    command: tuple[str, ...] = ()
    """The program and its arguments, in which ``{model}`` and ``{port}`` are replaced. By default ``vllm serve {model}
    --logprobs-mode processed_logprobs --generation-config vllm --port {port}`` or SGLang's ``launch_server``. To use another
    virtual environment, name its program: ``["/venvs/vllm/bin/vllm", "serve", "{model}", "--port", "{port}"]``."""
    arguments: tuple[str, ...] = ()
    """Further arguments, after those of ``command``. A ``command`` for vLLM needs ``["--logprobs-mode",
    "processed_logprobs"]`` if ``learner.temperature`` is not 1."""
    devices: tuple[str, ...] = ()
    """``CUDA_VISIBLE_DEVICES`` of each server, such as ``["1", "2,3"]``. By default each server gets one GPU after that of the
    learner, out of those that the run itself may use. With ``engine.sleep`` the first of them is that of the learner. If the
    learner is on a CPU, the variable stays as it is."""
    patience: Annotated[float, msgspec.Meta(gt=0.0)] = 1800.0
    """Seconds that the servers have to load the model and answer."""

    def __post_init__(self) -> None:
        if self.devices and len(self.devices) != self.replicas:
            raise ValueError(f"devices names the GPUs of {len(self.devices)} servers, but there are {self.replicas} replicas")
        if self.command and "{port}" not in self.command:
            raise ValueError('command needs a part "{port}", which is replaced by the port of the server')

    def command_for(self, kind: str, adapter_rank: int = 0) -> tuple[str, ...]:
        """The command, or the default one of ``vllm`` and ``sglang``. An ``adapter_rank`` is for servers that load adapters."""
        if self.command:
            return self.command
        if adapter_rank:
            # Two adapters are loaded at once while one replaces the other.
            known = next((rank for rank in _RANKS if rank >= adapter_rank), adapter_rank)
            chosen = ("--max-loras", "2") if kind == "vllm" else ("--lora-target-modules", "all")
            return (*self.command_for(kind), "--enable-lora", "--max-lora-rank", str(known), *chosen)
        if kind == "vllm":
            # The logged probabilities must be those of the temperature, and the model's own sampling defaults must not apply.
            options = ("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm")
            return ("vllm", "serve", "{model}", *options, "--host", "127.0.0.1", "--port", "{port}")
        program = ("python", "-m", "sglang.launch_server", "--model-path", "{model}")
        return (*program, "--host", "127.0.0.1", "--port", "{port}")


def server_devices(device: str, replicas: int, chosen: tuple[str, ...], *, shared: bool = False) -> list[str | None]:
    """Return ``CUDA_VISIBLE_DEVICES`` of each server; ``None`` leaves the variable as it is.

    Args:
        device: The device of the learner.
        replicas: The number of servers.
        chosen: What the recipe chooses; empty for one GPU per server after that of the learner.
        shared: Whether the first server gets the GPU of the learner.

    """
    own = _index(device)
    if chosen or own is None:
        return list(chosen) or [None] * replicas
    first = own if shared else own + 1
    wanted = range(first, first + replicas)
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
                f'(model.device = "{device}"): name other GPUs, or set engine.sleep = true'
            )


def check_collective(transfer: str, dtype: str, *, sleep: bool) -> None:
    """Raise ``UsageError`` if ``engine.transfer`` is ``collective`` and the other settings of the engine do not fit it."""
    if transfer == "collective" and (dtype != "bfloat16" or sleep):
        wrong = "engine.sleep shares GPUs" if sleep else f'engine.dtype = "{dtype}"'
        raise UsageError(
            f'engine.transfer = "collective" broadcasts bfloat16 to other GPUs than those of the learner, but {wrong}: set '
            'engine.dtype = "bfloat16" and engine.sleep = false'
        )


def _index(device: str) -> int | None:
    """The learner's index among the GPUs that it sees; ``None`` on a CPU."""
    kind, _, index = device.partition(":")
    return int(index) if index.isdigit() else 0 if kind == "cuda" else None


def _visible() -> list[str] | None:
    """The names of the GPUs that this process may use; ``None`` if it may use all of them."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else [name.strip() for name in listed.split(",") if name.strip()]
