"""Messages to token ids and back. ``renderer_for`` picks the best renderer for a tokenizer and tests it."""

from palestra.rendering.choice import renderer_for
from palestra.rendering.family import FamilyRenderer
from palestra.rendering.proof import prove
from palestra.rendering.template import TemplateRenderer

__all__ = ["FamilyRenderer", "TemplateRenderer", "prove", "renderer_for"]
