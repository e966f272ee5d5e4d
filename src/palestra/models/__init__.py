"""Small models to try things on: a real one that fits a laptop, and a tiny one that builds in seconds."""

from palestra.models.choice import find_model
from palestra.models.home import model_home
from palestra.models.smollm2 import fetch_smollm2
from palestra.models.tiny import build_tiny

__all__ = ["build_tiny", "fetch_smollm2", "find_model", "model_home"]
