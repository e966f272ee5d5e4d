"""OpenRLHF's executors on a CPU, with a scripted engine for vLLM: its experiences hold the tokens of the trajectories."""

import sys
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace as Namespace
from typing import Any

import pytest

pytest.importorskip("openrlhf")

import transformers

from palestra import Message, Task, Trajectory
from palestra.errors import InfrastructureError, UsageError
from palestra.integrations import openrlhf as bridge
from palestra.integrations import sequences
from palestra.models.tiny import build_tiny
from palestra.rollout import RolloutOptions
from tests.integrations.bridging import (
    GAME,
    MAX_TOKENS,
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
from tests.leftovers import nothing_left

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

LENGTH = 512
AGENT = (
    "from palestra.integrations.openrlhf import agent_executor\n\nAgentExecutor = agent_executor(max_tokens=16, retries=0)\n"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return transformers.AutoTokenizer.from_pretrained(build_tiny(tmp_path_factory.mktemp("model") / "tiny", envs=GAME))


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
    answer: dict[str, Any] = run(executor.execute(row["prompt"], row["label"], wanted, LENGTH, tokenizer, engine))
    return answer


def row_of(theirs: Any, answer: dict[str, Any], played: Trajectory) -> Row:
    """What OpenRLHF trains on. Its mask and log-probs begin with the second token."""
    experience = theirs.experience(None, answer, max_len=LENGTH)
    ids, start = experience.sequences[0].tolist(), played.segments[0].spans[0].start
    mask, logprobs = experience.action_mask[0].tolist(), experience.rollout_log_probs[0].tolist()
    assert not any(mask[: start - 1])
    assert experience.rewards.item() == pytest.approx(played.reward)
    return Row(ids[:start], ids[start:], mask[start - 1 :], logprobs[start - 1 :])


def test_two_hundred_episodes_arrive_token_by_token(theirs: Any, tokenizer: Any, tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_text(AGENT)
    executor, engine, tasks = theirs.load(str(file)), Engine(tokenizer), rough_tasks(200, WHOLE)
    played = expected(tasks, tokenizer, max_tokens=MAX_TOKENS, context_length=LENGTH)
    assert_rough(played, failures=False)
    answers = [execute(executor, engine, tokenizer, task) for task in tasks]
    compare([row_of(theirs, answer, one) for answer, one in zip(answers, played, strict=True)], played)
    assert [answer["truncated"] for answer in answers] == [one.stop == "length_cut" for one in played]


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


def test_the_loop_of_openrlhf_gives_the_same_tokens(theirs: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executor, engine, tasks = bridge.multi_turn_executor(tokenizer)(), Engine(tokenizer, cuts=0.0), rough_tasks(200, WHOLE)
    monkeypatch.setattr("tests.integrations.bridging.Speller", lambda tokenizer: Speller(tokenizer, cuts=0.0))
    played = expected(tasks, tokenizer, context_length=LENGTH, options=RolloutOptions(retries=0))
    assert {one.stop for one in played} == {"terminated", "turn_limit"}
    answers = [execute(executor, engine, tokenizer, task) for task in tasks]
    compare([row_of(theirs, answer, one) for answer, one in zip(answers, played, strict=True)], played)


def test_the_loop_of_openrlhf_needs_text_that_encodes_to_the_same_ids(tokenizer: Any) -> None:
    class Other(Namespace):
        """A tokenizer that encodes differently from what it decodes."""

    other = Other(decode=tokenizer.decode, encode=lambda text, **_: [0])
    with pytest.raises(UsageError, match="use agent_executor"):
        bridge._text(other, sequences.appending_renderer(tokenizer).first([Message("user", "Guess.")]))


def test_a_thousand_abandoned_episodes_leave_nothing(tokenizer: Any) -> None:
    import gc

    (row,) = bridge.task_rows([Task(WHOLE, 1)])
    made = bridge.multi_turn_executor(tokenizer)().agent_instance_cls

    async def abandon() -> None:
        for _ in range(1000):
            await made().reset({"observation": row["prompt"], "label": row["label"]})

    run(abandon())
    gc.collect()
    with nothing_left():
        run(abandon())
