"""slime's own ``Sample`` and HTTP client, from its repository: the tokens in the samples are those of the trajectories.

slime is on GitHub only, so no script installs it. With a checkout of THUDM/slime at commit 624b824::

    PYTHONPATH=.:CHECKOUT pytest -m bridges tests/integrations/test_slime.py
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("slime.utils.types", reason="slime is on GitHub only: put a checkout on PYTHONPATH")

from slime.utils import http_utils
from slime.utils.types import Sample

from palestra import Task
from palestra.integrations import slime as bridge
from tests.integrations.abandoned import EPISODES, HELD, Silent, all_closed, cut_off
from tests.integrations.bridging import (
    MAX_TOKENS,
    NARROW,
    Forgetting,
    Row,
    assert_rough,
    compare,
    compare_segments,
    expected,
    rough_tasks,
    run,
)
from tests.integrations.sglang import sglang

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


def calls(tasks: list[Task], folder: Path, port: int) -> list[Any]:
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
    rows = bridge.task_rows(tasks)
    samples = [Sample(group_index=at // 4, index=at, metadata=row["metadata"]) for at, row in enumerate(rows)]
    return [bridge.generate(args, one, {"max_new_tokens": MAX_TOKENS, "temperature": 1.0}) for one in samples]


def generated(tasks: list[Task], tokenizer: Any, folder: Path) -> list[Any]:
    async def play() -> list[Any]:
        async with sglang(tokenizer) as url:
            http_utils._http_client = http_utils.httpx.AsyncClient()
            try:
                return [await call for call in calls(tasks, folder, int(url.rpartition(":")[2]))]
            finally:
                await http_utils._http_client.aclose()
                http_utils._http_client = None

    made: list[Any] = run(play())
    return made


def row_of(sample: Any) -> Row:
    start = len(sample.tokens) - sample.response_length
    return Row(sample.tokens[:start], sample.tokens[start:], sample.loss_mask, sample.rollout_log_probs)


def test_two_hundred_episodes_arrive_token_by_token_and_failed_ones_are_aborted(tokenizer: Any, folder: Path) -> None:
    tasks = rough_tasks(200)
    played = expected(tasks, tokenizer, context_length=NARROW)
    assert_rough(played, overflow=True)
    samples = generated(tasks, tokenizer, folder)
    assert [one.status is Sample.Status.ABORTED for one in samples] == [one.stop.failed for one in played]
    assert all(one.reward is None for one in samples if one.status is Sample.Status.ABORTED)
    kept = [(sample, one) for sample, one in zip(samples, played, strict=True) if not one.stop.failed]
    compare([row_of(sample) for sample, _ in kept], [one for _, one in kept])
    assert [sample.reward for sample, _ in kept] == [one.reward for _, one in kept]
    assert [sample.status is Sample.Status.TRUNCATED for sample, _ in kept] == [one.truncated for _, one in kept]
    assert {tuple(sample.weight_versions) for sample, _ in kept} == {("4",)}
    groups = [samples[at : at + 4] for at in range(0, 200, 4)]
    assert [bridge.keep_whole_groups(None, group) for group in groups] == [
        not any(one.stop.failed for one in played[at : at + 4]) for at in range(0, 200, 4)
    ]


def test_every_segment_becomes_a_sample_of_one_rollout_token_by_token(
    tokenizer: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = Forgetting(tokenizer)
    monkeypatch.setattr(bridge, "_renderer", lambda name: renderer)
    tasks = rough_tasks(40)
    played = expected(tasks, tokenizer, context_length=NARROW, renderer=renderer)
    for number, (made, one) in enumerate(zip(generated(tasks, tokenizer, folder), played, strict=True)):
        if one.stop.failed:
            assert made.status is Sample.Status.ABORTED
            continue
        some = made if isinstance(made, list) else [made]
        compare_segments([row_of(each) for each in some], one)
        assert {(each.rollout_id, each.reward) for each in some} == {(number, one.reward)}
    assert max(len(one.segments) for one in played) > 2


def test_a_thousand_episodes_that_slime_abandons_leave_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slime's loop gathers the calls of ``generate``. Here they are cancelled, with slime's HTTP client that never answers."""
    silent = Silent()
    monkeypatch.setattr(http_utils, "post", silent)

    async def abandon() -> None:
        tasks = [Task(HELD, seed) for seed in range(EPISODES)]
        await cut_off(asyncio.gather(*calls(tasks, folder, 0)), silent)

    with all_closed():
        run(abandon())
