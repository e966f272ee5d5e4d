"""Messages to token ids and back. ``renderer_for`` picks the renderer that knows a tokenizer best, and proves it fit."""

from palestra.rendering.choice import renderer_for
from palestra.rendering.family import FamilyRenderer
from palestra.rendering.proof import prove
from palestra.rendering.template import TemplateRenderer

__all__ = ["FamilyRenderer", "TemplateRenderer", "prove", "renderer_for"]
