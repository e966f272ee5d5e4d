"""OpenRLHF's executors on a CPU, with a scripted engine for vLLM: its experiences hold the tokens of the trajectories."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace as Namespace
from typing import Any

import pytest

pytest.importorskip("openrlhf")


from palestra import Message, Task, Trajectory
from palestra.errors import InfrastructureError, UsageError
from palestra.integrations import openrlhf as bridge
from palestra.integrations import sequences
from palestra.trajectory import Finish
from tests.integrations.abandoned import EPISODES, HELD, Silent, all_closed, cut_off
from tests.integrations.bridging import (
    MAX_TOKENS,
    NARROW,
    WHOLE,
    Forgetting,
    Row,
    Speller,
    assert_rough,
    compare,
    expected,
    rough_tasks,
    run,
)

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

LENGTH = NARROW
AGENT = (
    "from palestra.integrations.openrlhf import agent_executor\n\nAgentExecutor = agent_executor(max_tokens=16, retries=0)\n"
)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The parts of OpenRLHF that load and read an agent. They import vLLM, which is not needed here."""
    fake = ModuleType("vllm")
    vars(fake).update(SamplingParams=Namespace, __version__="0.30.0", TokensPrompt=dict, random_uuid=lambda: "none")
    patch = pytest.MonkeyPatch()
    for name in ("vllm", "vllm.inputs", "vllm.utils"):
        patch.setitem(sys.modules, name, fake)
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
    from openrlhf.trainer.ray.vllm_engine import _load_agent_executor

    yield Namespace(load=_load_agent_executor, experience=SamplesGenerator._process_response_into_experience)
    patch.undo()


class Engine:
    """The engine of OpenRLHF, with the scripted model behind it."""

    def __init__(self, tokenizer: Any, cuts: float = 0.1) -> None:
        self._tokenizer = tokenizer
        self._sample = Speller(tokenizer, cuts=cuts)

    async def generate(self, prompt_ids: list[int], params: Any, multi_modal_data: Any = None) -> Any:
        ids, logprobs, stopped, _version = self._sample(prompt_ids, params.max_tokens)
        found = [{one: Namespace(logprob=value)} for one, value in zip(ids, logprobs, strict=True)]
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        finish = "stop" if stopped else "length"
        return Namespace(outputs=[Namespace(token_ids=list(ids), text=text, finish_reason=finish, logprobs=found)])


def execute(executor: Any, engine: Engine, tokenizer: Any, task: Task, logprobs: int | None = 1) -> dict[str, Any]:
    (row,) = bridge.task_rows([task])
    wanted = Namespace(max_tokens=None, logprobs=logprobs, temperature=1.0)
    answer: dict[str, Any] = run(executor.execute(**given(row, wanted, tokenizer, engine)))
    return answer


def given(row: dict[str, str], wanted: Any, tokenizer: Any, engine: Any) -> dict[str, Any]:
    """The keywords that OpenRLHF passes."""
    return {
        **row,
        "sampling_params": wanted,
        "max_length": LENGTH,
        "hf_tokenizer": tokenizer,
        "llm_engine": engine,
        "images": None,
    }


def row_of(theirs: Any, answer: dict[str, Any], played: Trajectory) -> Row:
    """What OpenRLHF trains on. Its mask and log-probs begin with the second token."""
    experience = theirs.experience(None, answer, max_len=LENGTH)
    start, length = played.segments[0].spans[0].start, len(played.segments[0].ids)
    # OpenRLHF's own loop also keeps an observation after which there was no room for a reply. Nothing of it is trained on.
    assert not experience.action_mask[0][length - 1 :].any()
    ids = experience.sequences[0].tolist()[:length]
    mask, logprobs = experience.action_mask[0].tolist()[: length - 1], experience.rollout_log_probs[0].tolist()[: length - 1]
    assert not any(mask[: start - 1])
    assert experience.rewards.item() == pytest.approx(played.reward)
    return Row(ids[:start], ids[start:], mask[start - 1 :], logprobs[start - 1 :])


def test_two_hundred_episodes_arrive_token_by_token(theirs: Any, tokenizer: Any, tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_text(AGENT)
    executor, engine, tasks = theirs.load(str(file)), Engine(tokenizer), rough_tasks(200)
    played = expected(tasks, tokenizer, max_tokens=MAX_TOKENS, context_length=LENGTH)
    assert_rough(played, overflow=True)
    compare_scored(theirs, executor, engine, tokenizer, played)


def compare_scored(theirs: Any, executor: Any, engine: Any, tokenizer: Any, played: Sequence[Trajectory]) -> None:
    """Play the tasks of ``played`` with OpenRLHF: a failed one raises an exception, and the others have the same tokens."""
    for one in played:
        if one.stop.failed:
            with pytest.raises((InfrastructureError, RuntimeError), match="broken on purpose"):
                execute(executor, engine, tokenizer, one.task)
            continue
        answer = execute(executor, engine, tokenizer, one.task)
        compare([row_of(theirs, answer, one)], [one])
        # OpenRLHF's own loop says whether the last reply was cut, and not that there was no room for another.
        last = one.turns[-1].completion
        assert answer["truncated"] == (last.finish in (Finish.LENGTH, Finish.OVERFLOW)) or last.usage is None


def test_without_log_probs_openrlhf_gets_none(theirs: Any, tokenizer: Any) -> None:
    answer = execute(bridge.agent_executor()(), Engine(tokenizer), tokenizer, Task(WHOLE, 1), logprobs=None)
    assert answer["rollout_log_probs"] is None
    assert theirs.experience(None, answer, max_len=LENGTH).rollout_log_probs is None


def test_a_failed_episode_is_raised(tokenizer: Any) -> None:
    executor, engine = bridge.agent_executor(max_tokens=MAX_TOKENS, retries=0)(), Engine(tokenizer)
    broken = next(one.task for one in expected(rough_tasks(40), tokenizer) if one.stop.failed)
    with pytest.raises(InfrastructureError, match=r"OpenRLHF cannot record an episode without a reward.*broken on purpose"):
        execute(executor, engine, tokenizer, broken)


def test_several_segments_are_refused(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "appending_renderer", Forgetting)
    executor, engine = bridge.agent_executor(max_tokens=MAX_TOKENS)(), Engine(tokenizer, cuts=0.0)
    with pytest.raises(UsageError, match="OpenRLHF takes one sequence per episode"):
        execute(executor, engine, tokenizer, Task(WHOLE, 1))


def test_the_loop_of_openrlhf_gives_the_same_tokens(theirs: Any, tokenizer: Any) -> None:
    executor, engine, tasks = bridge.multi_turn_executor(tokenizer)(), Engine(tokenizer), rough_tasks(200)
    # OpenRLHF's loop limits a turn only by the room that is left, so a cut is an overflow.
    played = expected(tasks, tokenizer, max_tokens=LENGTH, context_length=LENGTH)
    stops = {one.stop for one in played}
    assert {"terminated", "turn_limit", "context_overflow", "error"} <= stops
    assert any(one.turns[-1].completion.usage is None for one in played), "every episode had room for another reply"
    compare_scored(theirs, executor, engine, tokenizer, played)


def test_the_loop_of_openrlhf_needs_text_that_encodes_to_the_same_ids(tokenizer: Any) -> None:
    class Other(Namespace):
        """A tokenizer that encodes differently from what it decodes."""

    other = Other(decode=tokenizer.decode, encode=lambda text, **_: [0])
    with pytest.raises(UsageError, match="use a bridge that exchanges ids"):
        sequences.exact_text(other, sequences.appending_renderer(tokenizer).first([Message("user", "Guess.")]), "OpenRLHF")


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_thousand_abandoned_episodes_leave_nothing(whose: str, tokenizer: Any) -> None:
    executor = (bridge.agent_executor() if whose == "ours" else bridge.multi_turn_executor(tokenizer))()
    silent = Silent()

    async def abandon() -> None:
        wanted = Namespace(max_tokens=None, logprobs=1, temperature=1.0)
        rows = bridge.task_rows(Task(HELD, seed) for seed in range(EPISODES))
        calls = (executor.execute(**given(row, wanted, tokenizer, Namespace(generate=silent))) for row in rows)
        await cut_off(asyncio.gather(*calls), silent)

    with all_closed():
        run(abandon())


def test_an_aborted_reply_is_an_error(tokenizer: Any) -> None:
    class Aborting(Engine):
        async def generate(self, *args: Any, **kwargs: Any) -> Any:
            output = await super().generate(*args, **kwargs)
            output.outputs[0].finish_reason = "abort"
            return output

    for executor in (bridge.agent_executor(retries=0)(), bridge.multi_turn_executor(tokenizer)()):
        with pytest.raises(InfrastructureError, match="'abort'"):
            execute(executor, Aborting(tokenizer), tokenizer, Task(WHOLE, 1))
