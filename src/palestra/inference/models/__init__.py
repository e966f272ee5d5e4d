"""Small models to try things on: a real one that fits a laptop, and a tiny one that builds in seconds."""

from palestra.foundation.home import model_home
from palestra.inference.models.choice import find_model
from palestra.inference.models.smollm2 import fetch_smollm2
from palestra.inference.models.tiny import build_tiny

__all__ = ["build_tiny", "fetch_smollm2", "find_model", "model_home"]
