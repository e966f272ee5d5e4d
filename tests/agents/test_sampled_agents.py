"""Unmodified agents of other frameworks over a tiny model that transformers samples in this process: 200 episodes each."""

import asyncio
from typing import Any

import pytest
from tests.agents.accounting import play_and_account
from tests.agents.adder import trained_adder
from tests.agents.foreign import AGENTS

from palestra.engines.hf import HFEngine

pytestmark = [pytest.mark.bridges, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def adder() -> tuple[Any, Any]:
    return asyncio.run(trained_adder())


@pytest.mark.parametrize("name", AGENTS)
async def test_every_episode_of_an_agent_over_a_model_is_accounted_for(name: str, adder: tuple[Any, Any]) -> None:
    model, tokenizer = adder
    engine = HFEngine(model, decode=tokenizer.decode)
    await play_and_account(name, engine, tokenizer)
    await engine.close()
