"""The suite. ``register_suite`` registers every built-in id by reference and imports none of the environments."""

from palestra.suite.catalog import register_suite
from palestra.suite.mixture import Mixture, mix

__all__ = ["Mixture", "mix", "register_suite"]
