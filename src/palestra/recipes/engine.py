"""Options of the engine that samples tokens, and of the servers that a run starts: their command and their GPUs.

No server shares the GPU of the learner unless it sleeps. A process that was started with ``CUDA_VISIBLE_DEVICES`` counts its
GPUs inside that list: ``cuda:0`` is the first of the list. Servers get names out of the same list, because the variable that
they are started with replaces it.
"""

import os
from typing import Annotated, Literal

import msgspec

from palestra.errors import UsageError
from palestra.foundation.references import Hook, Role, parse_hook

__all__ = ["ENGINE", "SERVERS", "TRANSFER", "EngineSettings", "Launch", "check_devices", "server_devices"]

# The roles that a hook may fill, beside those of ``advantage``, ``loss`` and ``horizon``. The built-ins are references, so that
# reading a configuration imports none of them.
ENGINE = Role(
    "engine.kind",
    ("setup",),
    {name: f"palestra.inference.choice:{name}_engine" for name in ("local", "vllm", "sglang")},
    factory=True,
)
TRANSFER = Role(
    "engine.transfer",
    ("setup",),
    {name: f"palestra.inference.choice:{name}_transfer" for name in ("folder", "lora", "collective")},
    factory=True,
)
SERVERS = ("vllm", "sglang")
_Positive = Annotated[int, msgspec.Meta(ge=1)]
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
            supported = next((rank for rank in _RANKS if rank >= adapter_rank), adapter_rank)
            chosen = ("--max-loras", "2") if kind == "vllm" else ("--lora-target-modules", "all")
            return (*self.command_for(kind), "--enable-lora", "--max-lora-rank", str(supported), *chosen)
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
    learner = _index(device)
    if chosen or learner is None:
        return list(chosen) or [None] * replicas
    first = learner if shared else learner + 1
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
    learner = _index(device)
    if learner is None:
        return
    visible = _visible()
    name = str(learner) if visible is None or learner >= len(visible) else visible[learner]
    for devices in chosen:
        if name in devices.split(","):
            raise UsageError(
                f'engine.launch.devices = "{devices}" puts a server on GPU {name}, which is the learner\'s '
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


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine that samples tokens."""

    kind: Hook = "local"
    """``local``: a copy of the model in this process. ``vllm`` or ``sglang``: servers. Or your own engine as
    ``module:name``."""
    urls: tuple[str, ...] = ()
    """Addresses of the servers. The servers must be able to read the run folder: new weights reach them through it."""
    launch: Launch | None = None
    """Servers that the run starts itself, instead of ``urls``."""
    transfer: Hook = "folder"
    """How new weights reach servers. ``folder``: they load a model folder with all weights. ``lora``: they load the adapters
    alone, which needs ``model.lora`` and servers that were started with ``--enable-lora``. Servers at ``urls`` first load the
    model of the run, unless it is ``{use = "lora", load_base = false}``. ``collective``: the learner broadcasts all weights in
    bfloat16 to the GPUs of the servers, without files. Or your own as ``module:name``."""
    sleep: bool = False
    """Whether vLLM servers give the memory of their GPUs to the learner while it works. Servers and learner can then share
    GPUs. Needs ``staleness = 0``, and servers that were started with ``--enable-sleep-mode``."""
    batch: _Positive = 64
    """Local: requests that are computed together."""
    rows: _Positive = 128
    """Local: contexts whose keys and values are cached."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The data type of the engine's weights."""
    device: str | None = None
    """Local: the device of the engine. By default that of the learner (``model.device``)."""

    def __post_init__(self) -> None:
        ENGINE.check(self.kind)
        TRANSFER.check(self.transfer)
        if self.name == "local" and self.transfer_name != "folder":
            raise UsageError('engine.transfer is for servers: set engine.kind = "vllm" or "sglang" as well')
        check_collective(self.transfer_name, self.dtype, sleep=self.sleep)
        if self.sleep and self.name in ("local", "sglang"):
            raise UsageError('engine.sleep is for vLLM servers: set engine.kind = "vllm" as well')
        if self.name in SERVERS and not self.urls and self.launch is None:
            raise UsageError(
                f'engine.kind = "{self.name}" needs servers: name their addresses, engine.urls = ["http://…"], or add the '
                "table [engine.launch] to have the run start them"
            )
        if self.name == "local" and self.urls:
            raise UsageError('engine.urls is for servers: set engine.kind = "vllm" or "sglang" as well')
        if self.launch is not None and (self.urls or self.name not in SERVERS):
            raise UsageError('[engine.launch] starts servers: set engine.kind = "vllm" or "sglang", and leave engine.urls out')

    @property
    def name(self) -> str:
        """What ``kind`` uses: ``local``, ``vllm``, ``sglang`` or ``module:name``."""
        return parse_hook("engine.kind", self.kind)[0]

    @property
    def transfer_name(self) -> str:
        """What ``transfer`` uses: ``folder``, ``lora``, ``collective`` or ``module:name``."""
        return parse_hook("engine.transfer", self.transfer)[0]
