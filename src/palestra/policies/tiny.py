"""The policy ``tiny``: the trained model that the wheel carries. It needs neither torch nor a GPU.

It has learned the four games of ``palestra demo`` at their level ``easy``, and reads and writes the words of these games only.
Other environments can be played with it, but it has learned nothing about them.
"""

from palestra.core import Sampling
from palestra.inference.models.packed import load_demo_model
from palestra.policies.sampled import SampledPolicy

__all__ = ["tiny_policy"]

_LONGEST_MOVE = 10


def tiny_policy() -> SampledPolicy:
    """Return the policy. It takes the likeliest move."""
    model = load_demo_model()
    policy = SampledPolicy(model.renderer, model.engine, Sampling(max_tokens=_LONGEST_MOVE, temperature=0.0))
    policy.name = "tiny"
    return policy
