"""The same seed gives the same databases and the same first observation, in other processes and under other hash seeds."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")
pytest.importorskip("oscar", reason="django-oscar is not installed")
pytest.importorskip("spirit", reason="django-spirit is not installed")
pytest.importorskip("trac", reason="Trac is not installed")

TOWNS = ("wiki", "shop", "forum", "tracker", "across")
SEEDS = (11, 12)
_SHOW = f"""
import asyncio
from palestra.envs.web.sites.env import Errands
from palestra.envs.web.sites.state import dump_hash
from palestra.trajectory import text_of

async def show(name):
    env = Errands(f"palestra.envs.web.sites.{{name}}.town:town")
    try:
        for seed in {SEEDS}:
            observation, _ = await env.reset(seed=seed)
            hashes = {{host: dump_hash(box.folder / box.site.database) for host, box in sorted(env._sites.boxes.items())}}
            print(name, seed, hashes, repr(text_of(observation)))
    finally:
        await env.close()

for name in {TOWNS}:
    asyncio.run(show(name))
"""


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_machines_worth_of_processes_start_alike() -> None:
    """Each run has its own hash seed, browsers and warm processes."""
    printed = []
    for hash_seed in ("1", "2"):
        variables = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ended = subprocess.run([sys.executable, "-c", _SHOW], env=variables, capture_output=True, text=True, check=True)
        printed.append(ended.stdout.splitlines())
    assert printed[0] == printed[1]
    assert len(set(printed[0])) == len(TOWNS) * len(SEEDS)
    assert all("Address: http://" in line for line in printed[0])
