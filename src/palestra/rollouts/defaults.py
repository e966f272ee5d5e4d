"""The default settings of every rollout, in one place for Python, the command line and recipes."""

__all__ = ["CONCURRENCY", "DEADLINE", "RETRIES", "TASKS_PER_ENV"]

CONCURRENCY = 256
"""Episodes played at the same time."""

DEADLINE = 600.0
"""Seconds per episode."""

RETRIES = 2
"""Further attempts per episode after infrastructure failures."""

TASKS_PER_ENV = 100
"""Tasks drawn per environment."""
