"""Policies: what acts in an episode."""

from palestra.policies.acting import is_privileged, next_completion, policy_name
from palestra.policies.scripted import CallablePolicy, OraclePolicy, RandomPolicy, as_policy

__all__ = [
    "CallablePolicy",
    "OraclePolicy",
    "RandomPolicy",
    "as_policy",
    "is_privileged",
    "next_completion",
    "policy_name",
]
