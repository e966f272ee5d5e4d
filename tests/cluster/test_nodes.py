"""Several nodes on one machine."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import chaos
from tests.cluster.conftest import collect_quietly

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.alone]


@pytest.fixture
def nodes(ray_settings: None) -> Iterator[tuple[Any, list[Any]]]:
    with chaos.three_nodes() as found:
        yield found
    collect_quietly()


async def test_a_lost_node_costs_nothing_and_a_new_one_is_used(nodes: tuple[Any, list[Any]]) -> None:
    outcome = await chaos.lose_a_node(*nodes)
    assert outcome.unaccounted == 0
    assert len(outcome.places) >= 4
    assert chaos.digest(outcome.played) == chaos.digest(await chaos.played_here(outcome.issued, f"{chaos.HERE}:Patient"))
