"""Checks whether an environment keeps the contract, by playing it in every way in which one has failed before.

``check_env(target)`` returns a ``CheckReport`` with one finding per check. ``CheckReport.to_json`` writes it for machines, and
``render`` makes a table of it for a terminal.

Reading order: ``shelter`` (how its code is called) → ``subject`` (the environment under test) → ``episodes`` (one episode,
recorded) → ``survey`` (all episodes) → the checks (``contract``, ``determinism`` with ``elsewhere`` and ``replay``, ``scores``
with ``statistic``, ``secrecy``, ``cost`` with ``footprint``) → ``check`` (the table of checks) → ``report``, ``render``.
"""

from palestra.checking.check import CHECKS, Check, check_env
from palestra.checking.render import render
from palestra.checking.report import CheckReport, Finding, Status

__all__ = ["CHECKS", "Check", "CheckReport", "Finding", "Status", "check_env", "render"]
