"""Unmodified agents of other frameworks over a tiny model that a real vLLM server samples: 200 episodes each.

It needs the packages of ``constraints/agents.txt`` and, named by ``PALESTRA_VLLM_VENV``, a venv with vLLM: see ``.ci/nightly``.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.accounting import play_and_account
from tests.agents.adder import trained_adder
from tests.agents.foreign import AGENTS
from tests.engines.vllm_process import vllm_server

from palestra.engines.vllm import VLLMEngine

pytestmark = [pytest.mark.vllm, pytest.mark.torch, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """The address of a server, and the tokenizer of its model."""
    model, tokenizer = asyncio.run(trained_adder())
    folder: Path = tmp_path_factory.mktemp("adder")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with vllm_server(folder, DTYPE="float32") as url:
        yield url, tokenizer


@pytest.mark.parametrize("name", AGENTS)
async def test_every_episode_of_an_agent_over_vllm_is_accounted_for(name: str, served: tuple[str, Any]) -> None:
    url, tokenizer = served
    engine = VLLMEngine(url, timeout=600.0)
    await engine.connect()
    await play_and_account(name, engine, tokenizer)
    await engine.close()
