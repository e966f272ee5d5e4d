"""RL2's own ``Rollout.rollout`` over HTTP: its states, masks, log-probs and rewards are those of the trajectories.

SGLang and what needs a GPU are stand-ins for the imports; RL2 samples from an HTTP server that speaks SGLang's ``/generate``.
"""

import sys
import types
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("RL2")

import datasets  # noqa: F401 - before the stand-ins, which it would ask for
import peft  # noqa: F401
import wandb  # noqa: F401

from palestra import Task, Trajectory
from palestra.bridges import rl2 as adapter
from palestra.errors import UsageError
from palestra.trajectory import flatten
from tests.bridges.abandoned import Silent
from tests.bridges.bridging import MAX_TOKENS, WHOLE, Rewriting, Row, expected, rough_tasks, run
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

STAND_INS = """
    sglang sglang.srt sglang.srt.utils sglang.srt.model_executor sglang.srt.model_executor.model_runner sglang.srt.server_args
    sglang.srt.entrypoints sglang.srt.entrypoints.http_server sglang.srt.patch_torch sglang_router sglang_router.launch_router
    ring_flash_attn liger_kernel liger_kernel.transformers RL2.utils.sequence_parallelism RL2.workers.actor RL2.workers.critic
    RL2.workers.base
"""


class StandIn(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@pytest.fixture(scope="module")
def rollout_class() -> Any:
    for name in STAND_INS.split():
        sys.modules[name] = StandIn(name)
        sys.modules[name].__path__ = []
    from RL2.workers.rollout import Rollout

    return Rollout


def worker_of(kind: Any, tokenizer: Any, url: str, max_turns: int, shown: bool = True) -> Any:
    """RL2's worker without its servers, with the environment file loaded by RL2."""
    worker = object.__new__(kind)
    worker.config = SimpleNamespace(max_turns=max_turns, env_path=adapter.__file__)
    worker.prepare_environment()
    worker.tokenizer, worker.router_url = tokenizer, url
    worker.train_sampling_params = {"max_new_tokens": MAX_TOKENS, "skip_special_tokens": not shown, "no_stop_trim": True}
    return worker


def row_of(tensors: Any) -> Row:
    """RL2 keeps states without the last token, and everything else without the first."""
    ids = [*tensors["states"].tolist(), int(tensors["actions"][-1])]
    mask, logprobs = [0, *tensors["action_mask"].tolist()], [0.0, *tensors["llm_logps"].tolist()]
    start = mask.index(1)
    return Row(ids[:start], ids[start:], mask[start:], logprobs[start:])


class RL2(Bridge):
    """Has no place for a failed episode."""

    failures = False
    renderer = Rewriting

    def __init__(self, kind: Any, tokenizer: Any, folder: Path) -> None:
        super().__init__(tokenizer)
        self.kind, self.folder = kind, folder

    async def played(
        self, tasks: Sequence[Task], max_turns: int = 100, shown: bool = True, renderer: Any = None
    ) -> list[list[Any]]:
        async with sglang(self.tokenizer) as url:
            worker = worker_of(self.kind, self.tokenizer, url, max_turns, shown)
            if renderer is not None:
                worker.env._loaded = lambda model: (self.tokenizer, renderer)
            return [(await worker.rollout(row, True))[0] for row in adapter.task_rows(tasks, str(self.folder))]

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        self.tensors = run(self.played(tasks, renderer=renderer))
        return [Received(list(map(row_of, some))) for some in self.tensors]

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        for some, one in zip(self.tensors, played, strict=True):
            for tensors, flat in zip(some, flatten(one), strict=True):
                assert tensors["rewards"][len(flat.prompt) - 1 :].tolist() == flat.rewards.tolist()

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        await self.played(tasks, max_turns=1)  # RL2 drops them at its turn limit


@pytest.fixture
def bridge(rollout_class: Any, tokenizer: Any, folder: Path) -> RL2:
    return RL2(rollout_class, tokenizer, folder)


def test_a_failed_episode_is_an_error_and_not_a_zero(bridge: RL2) -> None:
    broken = next(one.task for one in expected(rough_tasks(200), bridge.tokenizer) if one.stop.failed)
    with pytest.raises(Exception, match="broken on purpose"):
        bridge.receive([broken])


def test_hidden_stop_tokens_are_noticed(bridge: RL2) -> None:
    with pytest.raises(UsageError, match="none of the first 64 replies ended with a stop token"):
        run(bridge.played(rough_tasks(100, WHOLE), shown=False))
