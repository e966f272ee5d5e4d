"""What the frameworks leave open is closed while their warnings are ignored."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.node.get_closest_marker("bridges") or request.node.get_closest_marker("vllm"):
        gc.collect()
