"""The suite. Importing this registers every built-in id by reference and imports none of the environments."""

from palestra.envs.catalog import register_suite

__all__ = ["register_suite"]
