import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_descriptor_left_open() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    # The listing itself has one.
    left = {name: os.readlink(f"/proc/self/fd/{name}") for name in set(os.listdir("/proc/self/fd")) - before if is_open(name)}
    assert left == {}


def is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")
