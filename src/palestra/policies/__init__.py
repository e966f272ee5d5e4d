"""Who acts."""

from palestra.policies.scripted import CallablePolicy, HumanPolicy, OraclePolicy, RandomPolicy, as_policy, policy_name

__all__ = ["CallablePolicy", "HumanPolicy", "OraclePolicy", "RandomPolicy", "as_policy", "policy_name"]
