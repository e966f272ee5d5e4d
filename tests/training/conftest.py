"""Tests that import torch are left out where it is not installed; the mathematics is tested either way."""

from importlib.util import find_spec

collect_ignore = (
    []
    if find_spec("torch")
    else ["test_loss.py", "test_learner.py", "test_checkpoint.py", "test_pitfalls_torch.py", "test_ranks.py"]
)
