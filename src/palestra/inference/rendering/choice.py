"""Choose a renderer for a tokenizer."""

from collections.abc import Mapping, Sequence
from typing import Any

from palestra.core import Renderer
from palestra.inference.rendering.family import FamilyRenderer, family_of
from palestra.inference.rendering.proof import prove
from palestra.inference.rendering.template import TemplateRenderer

__all__ = ["renderer_for"]


def renderer_for(
    tokenizer: Any, *, family: str | None = None, append_only: bool = False, tools: Sequence[Mapping[str, Any]] = ()
) -> Renderer:
    """Return a tested renderer for ``tokenizer``.

    ``family`` names a family of the ``renderers`` package. Without it the model's name decides; a model that the package does
    not know is rendered with its own chat template; ``family="template"`` always uses the template. ``append_only`` keeps
    sampled history even if the template would drop its thinking. ``tools`` are functions that the prompt lists in the model's
    own form, each as ``{"type": "function", "function": {"name": …, "description": …, "parameters": …}}``.
    """
    chosen = family or family_of(tokenizer)
    renderer: Renderer
    if chosen is None or chosen == "template":
        options = {"tools": [dict(tool) for tool in tools]} if tools else {}
        renderer = TemplateRenderer(tokenizer, append_only=append_only, options=options)
    else:
        renderer = FamilyRenderer(tokenizer, chosen, append_only=append_only, tools=tools)
    prove(renderer, tokenizer)
    return renderer
