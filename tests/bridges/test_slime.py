"""slime's own ``Sample`` and HTTP client, from its repository: the tokens in the samples are those of the trajectories.

slime is on GitHub only, so no script installs it. With a checkout of THUDM/slime at commit 624b824::

    PYTHONPATH=.:CHECKOUT pytest -m bridges tests/bridges/test_slime.py
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("slime.utils.types", reason="slime is on GitHub only: put a checkout on PYTHONPATH")

from slime.utils import http_utils
from slime.utils.types import Sample

from palestra import Task, Trajectory
from palestra.bridges import slime as adapter
from tests.bridges.abandoned import Silent, cut_off
from tests.bridges.bridging import MAX_TOKENS, NARROW, Row, run
from tests.bridges.contract import (
    FRAMEWORK,
    Bridge,
    Received,
    test_a_thousand_abandoned_episodes_leave_nothing,  # noqa: F401
    test_every_segment_arrives_token_by_token,  # noqa: F401
    test_two_hundred_episodes_arrive_token_by_token,  # noqa: F401
)
from tests.bridges.sglang import sglang

pytestmark = FRAMEWORK


def calls(tasks: Sequence[Task], folder: Path, port: int) -> list[Any]:
    """The calls that slime makes: one per sample."""
    args = SimpleNamespace(
        hf_checkpoint=str(folder),
        sglang_router_ip="127.0.0.1",
        sglang_router_port=port,
        rollout_max_context_len=NARROW,
        n_samples_per_prompt=4,
        rollout_num_gpus=1,
        rollout_num_gpus_per_engine=1,
        sglang_server_concurrency=8,
        use_distributed_post=False,
    )
    rows = adapter.task_rows(tasks)
    samples = [Sample(group_index=at // 4, index=at, metadata=row["metadata"]) for at, row in enumerate(rows)]
    return [adapter.generate(args, one, {"max_new_tokens": MAX_TOKENS, "temperature": 1.0}) for one in samples]


def row_of(sample: Any) -> Row:
    start = len(sample.tokens) - sample.response_length
    return Row(sample.tokens[:start], sample.tokens[start:], sample.loss_mask, sample.rollout_log_probs)


class Slime(Bridge):
    """Gets a failed episode as an aborted sample without a reward, and an episode of several segments as a list."""

    context = NARROW

    def __init__(self, tokenizer: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(tokenizer)
        self.folder, self.monkeypatch = folder, monkeypatch

    async def generated(self, tasks: Sequence[Task]) -> list[Any]:
        async with sglang(self.tokenizer) as url:
            http_utils._http_client = http_utils.httpx.AsyncClient()
            try:
                return [await call for call in calls(tasks, self.folder, int(url.rpartition(":")[2]))]
            finally:
                await http_utils._http_client.aclose()
                http_utils._http_client = None

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        if renderer is not None:
            self.monkeypatch.setattr(adapter, "_renderer", lambda name: renderer)
        self.samples = [made if isinstance(made, list) else [made] for made in run(self.generated(tasks))]
        received: list[Received | None] = []
        for number, some in enumerate(self.samples):
            aborted = some[0].status is Sample.Status.ABORTED
            if aborted:
                assert some[0].reward is None
            else:
                assert {(each.rollout_id, each.reward) for each in some} == {(number, some[0].reward)}
            received.append(None if aborted else Received(list(map(row_of, some)), some[0].reward))
        return received

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        scored = [(some[-1], one) for some, one in zip(self.samples, played, strict=True) if not one.stop.failed]
        assert [sample.status is Sample.Status.TRUNCATED for sample, _ in scored] == [one.truncated for _, one in scored]
        assert {tuple(sample.weight_versions) for sample, _ in scored} == {("4",)}
        firsts = [some[0] for some in self.samples]
        for at in range(0, len(played), 4):
            whole = not any(one.stop.failed for one in played[at : at + 4])
            assert adapter.keep_whole_groups(None, firsts[at : at + 4]) == whole

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        """Slime's loop gathers the calls of ``generate``. Here they are cancelled, with slime's client that never answers."""
        self.monkeypatch.setattr(http_utils, "post", silent)
        await cut_off(asyncio.gather(*calls(tasks, self.folder, 0)), silent)


@pytest.fixture
def bridge(tokenizer: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Slime:
    return Slime(tokenizer, folder, monkeypatch)
