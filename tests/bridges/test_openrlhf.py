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
from palestra.bridges import openrlhf as adapter
from palestra.bridges import sequences
from palestra.errors import InfrastructureError, UsageError
from palestra.trajectory import Finish
from tests.bridges.abandoned import Silent, cut_off
from tests.bridges.bridging import MAX_TOKENS, NARROW, WHOLE, Forgetting, Row, Speller, run
from tests.bridges.contract import (
    FRAMEWORK,
    Bridge,
    Received,
    test_a_thousand_abandoned_episodes_leave_nothing,  # noqa: F401
    test_two_hundred_episodes_arrive_token_by_token,  # noqa: F401
)

pytestmark = FRAMEWORK

AGENT = "from palestra.bridges.openrlhf import agent_executor\n\nAgentExecutor = agent_executor(max_tokens=16, retries=0)\n"


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

    def __init__(self, tokenizer: Any, cuts: float = 0.1, aborts: bool = False) -> None:
        self._tokenizer = tokenizer
        self._sample = Speller(tokenizer, cuts=cuts)
        self._aborts = aborts

    async def generate(self, prompt_ids: list[int], params: Any, multi_modal_data: Any = None) -> Any:
        ids, logprobs, stopped, _version = self._sample(prompt_ids, params.max_tokens)
        found = [{one: Namespace(logprob=value)} for one, value in zip(ids, logprobs, strict=True)]
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        finish = "abort" if self._aborts else "stop" if stopped else "length"
        return Namespace(outputs=[Namespace(token_ids=list(ids), text=text, finish_reason=finish, logprobs=found)])


def given(row: dict[str, str], tokenizer: Any, engine: Any, logprobs: int | None = 1) -> dict[str, Any]:
    """The keywords that OpenRLHF passes."""
    wanted = Namespace(max_tokens=None, logprobs=logprobs, temperature=1.0)
    rest = {"hf_tokenizer": tokenizer, "llm_engine": engine, "images": None}
    return {**row, "sampling_params": wanted, "max_length": NARROW, **rest}


def execute(executor: Any, engine: Engine, tokenizer: Any, task: Task, logprobs: int | None = 1) -> dict[str, Any]:
    (row,) = adapter.task_rows([task])
    answer: dict[str, Any] = run(executor.execute(**given(row, tokenizer, engine, logprobs)))
    return answer


def row_of(theirs: Any, answer: dict[str, Any], played: Trajectory) -> Row:
    """What OpenRLHF trains on. Its mask and log-probs begin with the second token."""
    experience = theirs.experience(None, answer, max_len=NARROW)
    start, length = played.segments[0].spans[0].start, len(played.segments[0].ids)
    # OpenRLHF's own loop also keeps an observation after which there was no room for a reply. Nothing of it is trained on.
    assert not experience.action_mask[0][length - 1 :].any()
    ids = experience.sequences[0].tolist()[:length]
    mask, logprobs = experience.action_mask[0].tolist()[: length - 1], experience.rollout_log_probs[0].tolist()[: length - 1]
    assert not any(mask[: start - 1])
    assert experience.rewards.item() == pytest.approx(played.reward)
    return Row(ids[:start], ids[start:], mask[start - 1 :], logprobs[start - 1 :])


class Executor(Bridge):
    """The executor that OpenRLHF loads from the agent's file. A failed episode raises an exception."""

    context = NARROW

    def __init__(self, tokenizer: Any, theirs: Any, executor: Any) -> None:
        super().__init__(tokenizer)
        self.theirs, self.executor = theirs, executor

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        engine, received = Engine(self.tokenizer), list[Received | None]()
        self.answers = dict[int, Any]()
        for task in tasks:
            try:
                answer = self.answers[task.seed] = execute(self.executor, engine, self.tokenizer, task)
            except (InfrastructureError, RuntimeError) as error:
                if "broken on purpose" not in str(error):
                    raise
                received.append(None)
            else:
                received.append(Received(lambda one, answer=answer: [row_of(self.theirs, answer, one)]))  # type: ignore[misc]
        return received

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        # OpenRLHF's own loop says whether the last reply was cut, and not that there was no room for another.
        for one in played:
            if not one.stop.failed and (last := one.turns[-1].completion).usage is not None:
                assert self.answers[one.task.seed]["truncated"] == (last.finish in (Finish.LENGTH, Finish.OVERFLOW))

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        engine = Namespace(generate=silent)
        rows = adapter.task_rows(tasks)
        await cut_off(asyncio.gather(*(self.executor.execute(**given(row, self.tokenizer, engine)) for row in rows)), silent)


class MultiTurn(Executor):
    """OpenRLHF's own loop around the agent. It limits a turn only by the room that is left, so a cut is an overflow."""

    max_tokens = NARROW

    def rough(self, played: Sequence[Trajectory]) -> None:
        assert {"terminated", "turn_limit", "context_overflow", "error"} <= {one.stop for one in played}
        assert any(one.turns[-1].completion.usage is None for one in played), "every episode had room for another reply"


@pytest.fixture(params=["ours", "theirs"])
def bridge(request: pytest.FixtureRequest, theirs: Any, tokenizer: Any, tmp_path: Path) -> Executor:
    if request.param == "theirs":
        return MultiTurn(tokenizer, theirs, adapter.multi_turn_executor(tokenizer)())
    file = tmp_path / "agent.py"
    file.write_text(AGENT)
    return Executor(tokenizer, theirs, theirs.load(str(file)))


def test_an_aborted_reply_is_an_error(bridge: Executor) -> None:
    with pytest.raises(InfrastructureError, match="'abort'"):
        execute(bridge.executor, Engine(bridge.tokenizer, aborts=True), bridge.tokenizer, Task(WHOLE, 1))


def test_without_log_probs_openrlhf_gets_none(theirs: Any, tokenizer: Any) -> None:
    answer = execute(adapter.agent_executor()(), Engine(tokenizer), tokenizer, Task(WHOLE, 1), logprobs=None)
    assert answer["rollout_log_probs"] is None
    assert theirs.experience(None, answer, max_len=NARROW).rollout_log_probs is None


def test_several_segments_are_refused(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "appending_renderer", Forgetting)
    with pytest.raises(UsageError, match="OpenRLHF takes one sequence per episode"):
        execute(adapter.agent_executor(max_tokens=MAX_TOKENS)(), Engine(tokenizer, cuts=0.0), tokenizer, Task(WHOLE, 1))


def test_the_loop_of_openrlhf_needs_text_that_encodes_to_the_same_ids(tokenizer: Any) -> None:
    other = Namespace(decode=tokenizer.decode, encode=lambda text, **_: [0])
    with pytest.raises(UsageError, match="use a bridge that exchanges ids"):
        sequences.exact_text(other, sequences.appending_renderer(tokenizer).first([Message("user", "Guess.")]), "OpenRLHF")
