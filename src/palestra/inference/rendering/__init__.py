"""Messages to token ids and back. ``renderer_for`` picks the best renderer for a tokenizer and tests it."""

from palestra.inference.rendering.choice import renderer_for
from palestra.inference.rendering.family import FamilyRenderer
from palestra.inference.rendering.proof import prove
from palestra.inference.rendering.template import TemplateRenderer

__all__ = ["FamilyRenderer", "TemplateRenderer", "prove", "renderer_for"]
