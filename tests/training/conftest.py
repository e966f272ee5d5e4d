"""Tests that need torch are left out where it is not installed; the mathematics is tested either way."""

from importlib.util import find_spec

import pytest

_HAS_TORCH = find_spec("torch") is not None and find_spec("transformers") is not None
_NEED_TORCH = ("experience", "learner", "loss", "ranks", "trainer")

collect_ignore = [] if _HAS_TORCH else [f"test_{name}.py" for name in _NEED_TORCH]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _HAS_TORCH:
        return
    for item in items:
        if item.get_closest_marker("torch"):
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))
