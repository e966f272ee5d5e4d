"""The prompts of a run: which renderer writes them, how much of an episode they show, and which examples precede it."""

from typing import Any

from palestra.core import Renderer
from palestra.inference.rendering import renderer_for
from palestra.policies.history import History
from palestra.policies.shots import NoShots, OracleShots
from palestra.recipes.play import PROMPT_HISTORY, PromptSettings

__all__ = ["prompt_options", "renderer_of"]


def renderer_of(settings: PromptSettings, tokenizer: Any) -> Renderer:
    """Return the renderer of the run's prompts, checked against ``tokenizer``."""
    return renderer_for(tokenizer, family=settings.family, append_only=settings.append_only)


def prompt_options(settings: PromptSettings) -> dict[str, Any]:
    """Return ``settings`` as keyword arguments of ``SampledPolicy``."""
    history: History = PROMPT_HISTORY.load(settings.history)()
    return {"history": history, "shots": OracleShots(settings.shots) if settings.shots else NoShots()}
