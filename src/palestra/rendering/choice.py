"""Which renderer for which tokenizer."""

from typing import Any

from palestra.core import Renderer
from palestra.rendering.family import FamilyRenderer, family_of
from palestra.rendering.proof import prove
from palestra.rendering.template import TemplateRenderer

__all__ = ["renderer_for"]


def renderer_for(tokenizer: Any, *, family: str | None = None, append_only: bool = False) -> Renderer:
    """A proven renderer for ``tokenizer``.

    ``family`` names a family of the ``renderers`` package; without it the model's name decides, and a model the package does
    not know is rendered through its own chat template. ``family="template"`` asks for that outright. ``append_only`` keeps
    sampled history even where the template would drop its thinking.
    """
    chosen = family or family_of(tokenizer)
    renderer: Renderer
    if chosen is None or chosen == "template":
        renderer = TemplateRenderer(tokenizer, append_only=append_only)
    else:
        renderer = FamilyRenderer(tokenizer, chosen, append_only=append_only)
    prove(renderer, tokenizer)
    return renderer
