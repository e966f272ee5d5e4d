"""One small Ray for all tests that need it, with a token of its own."""

import gc
import os
import secrets
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def collect_quietly() -> None:
    """Ray leaves the handles of the processes it has ended to the garbage collector, which complains."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def ray_settings() -> Iterator[None]:
    """What has to be in the environment before Ray is imported."""
    wanted = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_raylet_start_wait_time_s": "200",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="module")
def ray(ray_settings: None) -> Iterator[Any]:
    """A Ray of four logical CPUs on this machine."""
    from palestra.cluster.rays import connect

    found = connect("local", num_cpus=4, object_store_memory=100 * 2**20)
    yield found
    found.shutdown()
    collect_quietly()
