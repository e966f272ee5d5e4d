"""Does an environment keep the contract? ``check_env`` plays it in every way that has gone wrong before, and says.

``check_env(target)`` gives a ``CheckReport``: frozen findings, ``ok``, ``to_json`` for machines; ``render`` makes a table of it
for people.

The way through the code: ``subject`` (what is tested) → ``episodes`` (one episode, written down) → ``survey`` (all of them) →
the checks (``contract``, ``determinism`` with ``elsewhere`` and ``replay``, ``scores`` with ``statistic``, ``secrecy``,
``cost`` with ``footprint``) → ``check`` (their table) → ``report``, ``render``.
"""

from palestra.checking.check import CHECKS, Check, check_env
from palestra.checking.render import render
from palestra.checking.report import CheckReport, Finding, Status

__all__ = ["CHECKS", "Check", "CheckReport", "Finding", "Status", "check_env", "render"]
