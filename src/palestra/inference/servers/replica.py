"""What an HTTP engine knows of a server, what it gets from a call, and the adapter that it loads into one."""

from typing import NamedTuple

from palestra.trajectory import Finish

__all__ = ["LoraAdapter", "SampledPart", "ServerReplica"]


class SampledPart(NamedTuple):
    """The tokens of one call."""

    ids: list[int]
    logprobs: list[float]
    finish: Finish | None
    """``None`` if the server was asked to stop before the end."""


class LoraAdapter(NamedTuple):
    """An adapter that servers load beside the weights that they have."""

    folder: str
    """``adapter_config.json`` and ``adapter_model.safetensors``, as PEFT writes them."""
    name: str
    """Another one for every version: servers cache prefixes by the name of the adapter."""
    base: str = ""
    """The model folder, or its name on the hub, that the adapter changes. Servers load it first. Empty if they hold it already:
    nothing else may ever have been loaded into them."""


class ServerReplica:
    """One server with a copy of the model."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.under_way = 0
        self.healthy = True
        self.version = 0
        self.adapter = ""
        """The name of the adapter that samples; empty if the model itself does."""
        self.base = ""
        """The ``LoraAdapter.base`` that the server has loaded; empty if it is not known what the server holds."""
        self.asleep: bool | None = None
        """Whether the server has given its memory back; ``None`` until it was asked."""
        self.restarts = 0
        """How often the server was, or may have been, started again. What it knew before is not relied on."""
