"""RL2's own ``Rollout.rollout`` over HTTP: its states, masks, log-probs and rewards are those of the trajectories.

SGLang and what needs a GPU are stand-ins for the imports; RL2 samples from an HTTP server that speaks SGLang's ``/generate``.
"""

import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("RL2")

import datasets  # noqa: F401 - before the stand-ins, which it would ask for
import peft  # noqa: F401
import wandb  # noqa: F401

from palestra import StopReason, Task
from palestra.errors import UsageError
from palestra.integrations import rl2 as bridge
from palestra.trajectory import flatten
from tests.integrations.abandoned import EPISODES, HELD, all_closed
from tests.integrations.bridging import (
    MAX_TOKENS,
    ROUGH,
    WHOLE,
    Rewriting,
    Row,
    compare,
    compare_segments,
    expected,
    rough_tasks,
    run,
)
from tests.integrations.sglang import sglang

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

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
    worker.config = SimpleNamespace(max_turns=max_turns, env_path=bridge.__file__)
    worker.prepare_environment()
    worker.tokenizer, worker.router_url = tokenizer, url
    worker.train_sampling_params = {"max_new_tokens": MAX_TOKENS, "skip_special_tokens": not shown, "no_stop_trim": True}
    return worker


def played_by_rl2(
    kind: Any, tokenizer: Any, folder: Path, tasks: list[Task], max_turns: int = 100, shown: bool = True, renderer: Any = None
) -> list[Any]:
    async def play() -> list[Any]:
        async with sglang(tokenizer) as url:
            worker = worker_of(kind, tokenizer, url, max_turns, shown)
            if renderer is not None:
                worker.env._loaded = lambda model: (tokenizer, renderer)
            return [(await worker.rollout(row, True))[0] for row in bridge.task_rows(tasks, str(folder))]

    made: list[Any] = run(play())
    return made


def row_of(tensors: Any) -> Row:
    """RL2 keeps states without the last token, and everything else without the first."""
    ids = [*tensors["states"].tolist(), int(tensors["actions"][-1])]
    mask, logprobs = [0, *tensors["action_mask"].tolist()], [0.0, *tensors["llm_logps"].tolist()]
    start = mask.index(1)
    return Row(ids[:start], ids[start:], mask[start:], logprobs[start:])


def test_two_hundred_episodes_arrive_token_by_token(rollout_class: Any, tokenizer: Any, folder: Path) -> None:
    tasks = rough_tasks(200, WHOLE)
    ours = expected(tasks, tokenizer)
    assert {one.stop for one in ours} >= {StopReason.LENGTH_CUT, StopReason.TERMINATED}
    assert any(one.truncated and one.stop is not StopReason.LENGTH_CUT for one in ours)
    theirs = played_by_rl2(rollout_class, tokenizer, folder, tasks)
    compare([row_of(tensors) for (tensors,) in theirs], ours)
    for (tensors,), one in zip(theirs, ours, strict=True):
        (flat,) = flatten(one)
        assert tensors["rewards"][len(flat.prompt) - 1 :].tolist() == flat.rewards.tolist()
    assert max(len(one.turns) for one in ours) > 2


def test_a_failed_episode_is_an_error_and_not_a_zero(rollout_class: Any, tokenizer: Any, folder: Path) -> None:
    broken = next(one.task for one in expected(rough_tasks(200), tokenizer) if one.stop.failed)
    assert broken.env == ROUGH
    with pytest.raises(Exception, match="broken on purpose"):
        played_by_rl2(rollout_class, tokenizer, folder, [broken])


def test_every_segment_becomes_a_sequence_token_by_token(rollout_class: Any, tokenizer: Any, folder: Path) -> None:
    tasks, renderer = rough_tasks(200, WHOLE), Rewriting(tokenizer)
    ours = expected(tasks, tokenizer, renderer=renderer)
    theirs = played_by_rl2(rollout_class, tokenizer, folder, tasks, renderer=renderer)
    for tensors, one in zip(theirs, ours, strict=True):
        compare_segments([row_of(each) for each in tensors], one)
        assert [each["rewards"].sum().item() for each in tensors] == [turn.reward for turn in one.turns]
    assert max(len(one.segments) for one in ours) > 2


def test_a_thousand_episodes_that_rl2_drops_at_its_turn_limit_leave_nothing(
    rollout_class: Any, tokenizer: Any, folder: Path
) -> None:
    played_by_rl2(rollout_class, tokenizer, folder, rough_tasks(1, WHOLE), max_turns=1)  # loads what is loaded once
    with all_closed():
        played_by_rl2(rollout_class, tokenizer, folder, [Task(HELD, seed) for seed in range(EPISODES)], max_turns=1)


def test_hidden_stop_tokens_are_noticed(rollout_class: Any, tokenizer: Any, folder: Path) -> None:
    with pytest.raises(UsageError, match="none of the first 64 replies ended with a stop token"):
        played_by_rl2(rollout_class, tokenizer, folder, rough_tasks(100, WHOLE), shown=False)
