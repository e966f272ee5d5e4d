from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def alone() -> Iterator[Any]:
    """A group of one rank over gloo, which sends to itself what ranks send to each other."""
    dist = pytest.importorskip("torch.distributed")
    from palestra.training.learner.context import ContextGroup

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield ContextGroup(1, 0, dist.group.WORLD)
    finally:
        dist.destroy_process_group()
