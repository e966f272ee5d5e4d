"""What the engine of a run is built from. Importing this module imports no engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from palestra.recipes.engine import EngineSettings

__all__ = ["EngineSetup"]


class EngineSetup(NamedTuple):
    """What an engine of a run is built from."""

    options: EngineSettings
    """The table ``[engine]`` of the recipe."""
    model: str
    """The model folder, or its name on the hub, that the first step starts from."""
    folder: Path
    """The run folder."""
    tokenizer: Any
    """The tokenizer of the model, from transformers."""
    learner_device: str = "cpu"
    """The device of the learner: ``model.device`` of the recipe."""
    adapter_rank: int = 0
    """The rank of the LoRA adapters that are trained; 0 if all weights are."""
    timeout: float = 600.0
    """Seconds that a call of a server may take: the deadline of an episode."""
    say: Callable[[str], None] = lambda _: None
    """Takes notes for the user."""
