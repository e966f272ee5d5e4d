"""The same seed gives the same databases and the same first observation in other processes.

Palestra starts the process of a site with a fixed hash seed. The process that draws the tasks has any.
"""

import json
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
import asyncio, json
from palestra.envs.web.sites.env import Errands
from palestra.envs.web.sites.state import dump_hash
from palestra.trajectory import text_of

async def show(name):
    env = Errands(f"palestra.envs.web.sites.{{name}}.town:town")
    try:
        for seed in {SEEDS}:
            observation, _ = await env.reset(seed=seed)
            hashes = [dump_hash(env.database(host)) for host in sorted(env._sites.boxes)]
            print(json.dumps([name, seed, hashes, text_of(observation)]))
    finally:
        await env.close()

for name in {TOWNS}:
    asyncio.run(show(name))
"""


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_machines_worth_of_processes_start_alike() -> None:
    """Each run has its own browsers and warm processes, and another hash seed."""
    printed = []
    for hash_seed in ("1", "2"):
        variables = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ended = subprocess.run([sys.executable, "-c", _SHOW], env=variables, stdout=subprocess.PIPE, text=True, check=True)
        printed.append([json.loads(line) for line in ended.stdout.splitlines()])
    assert printed[0] == printed[1]
    assert [line[:2] for line in printed[0]] == [[name, seed] for name in TOWNS for seed in SEEDS]
    assert len({str(hashes) for _, _, hashes, _ in printed[0]}) == len(printed[0])  # another seed, another database
    assert all("Address: http://" in observation for *_, observation in printed[0])
