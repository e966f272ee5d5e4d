"""Random episodes through the whole chain: renderer, policy, segments. The engine writes arbitrary ids, as a model may."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from palestra.core import AsyncEnv, Conversation, Renderer, Sampling, Step
from palestra.foundation.encoding import Ints, floats, ints
from palestra.inference.rendering import FamilyRenderer, TemplateRenderer, renderer_for
from palestra.policies.history import FullHistory, History, LastObservation, Summary, Window
from palestra.policies.sampled import SampledPolicy
from palestra.policies.shots import OracleShots
from palestra.registry import make_async
from palestra.rollouts import rollout
from palestra.testing.scripted import ScriptedEngine
from palestra.tools import tool
from palestra.trajectory import (
    Completion,
    Finish,
    Message,
    Segment,
    StopReason,
    Task,
    Tokens,
    ToolCall,
    ToolResult,
    Trajectory,
    text_of,
)
from palestra.trajectory.calls import format_call, format_result
from palestra.trajectory.segments import SegmentRecorder
from palestra.wrappers import UseTools
from tests.inference.rendering.zoo import tokenizer
from tests.policies.test_chat import FixedShots

pytestmark = pytest.mark.torch

TASK = Task("game:GuessTheNumber-v0-easy", 0)
RENDERERS: dict[str, Callable[[], Renderer]] = {
    "chatml": lambda: TemplateRenderer(tokenizer("chatml")),
    "llama3": lambda: TemplateRenderer(tokenizer("llama3")),
    "qwen3": lambda: TemplateRenderer(tokenizer("qwen3")),
    "qwen3published": lambda: TemplateRenderer(tokenizer("qwen3published")),
    "qwen3-append": lambda: TemplateRenderer(tokenizer("qwen3"), append_only=True),
    "qwen3-family": lambda: FamilyRenderer(tokenizer("qwen3"), "qwen3"),
    "qwen3-family-append": lambda: FamilyRenderer(tokenizer("qwen3"), "qwen3", append_only=True),
    "llama3-family": lambda: FamilyRenderer(tokenizer("llama3"), "llama-3"),
    "lossy": lambda: TemplateRenderer(tokenizer("lossy")),
    "bytes": lambda: TemplateRenderer(tokenizer("bytes")),
    "metaspace": lambda: TemplateRenderer(tokenizer("metaspace")),
}
APPENDING = {"chatml", "llama3", "qwen3-append", "lossy", "bytes", "metaspace", "smollm2"}
"""Here an episode whose messages only grow must be one segment."""


@cache
def renderer(name: str) -> Renderer:
    return TemplateRenderer(tokenizer(name)) if name not in RENDERERS else RENDERERS[name]()


CALL = format_call(ToolCall("python", {"code": "print(1 < 2)"}))
ids = st.sampled_from(["", "call_1", "functions.python:0"])
contents = st.text(max_size=20) | st.sampled_from(
    ["<|im_end|>", "</s>user: hm", " \n", CALL, "\\boxed{7}", "é ü ß", "PalestraReplyMarker"]
)
tool_results = st.builds(
    lambda text, ok, call: format_result("python", ToolResult(text, ok), call), contents, st.booleans(), ids
)
answers = st.builds(Message, st.just("tool"), contents | st.lists(tool_results, min_size=1, max_size=3).map("\n".join))
observations = st.lists(st.builds(Message, st.just("user"), contents) | answers, min_size=1, max_size=2)


class Turn(msgspec.Struct):
    ids: list[int]
    ended: bool
    then: list[Message]


class Episode(msgspec.Struct):
    start: list[Message]
    turns: list[Turn]


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    system = [Message("system", draw(contents))] if draw(st.booleans()) else []
    turns = st.builds(Turn, st.lists(st.integers(0, 10_000), max_size=8), st.booleans(), observations)
    return Episode([*system, Message("user", draw(contents))], draw(st.lists(turns, min_size=1, max_size=5)))


class Record:
    """An episode as it was sampled, and as it was recorded."""

    def __init__(self, segments: tuple[Segment, ...], sampled: list[Ints], completions: list[Completion]) -> None:
        self.segments = segments
        self.sampled = sampled
        self.completions = completions


async def play(using: Renderer, vocabulary: int, episode: Episode, history: History | None = None) -> Record:
    script = iter(episode.turns)
    sampled: list[Ints] = []
    policy = SampledPolicy(using, ScriptedEngine(_writer(script, using, vocabulary)), Sampling(64), history=history)
    conversation = Conversation(TASK, make_async(TASK.env))
    conversation.messages += episode.start
    recorder, completions = SegmentRecorder(), []
    for number, turn in enumerate(episode.turns):
        completion = await policy.act(conversation)
        assert completion.tokens is not None
        sampled.append(completion.tokens.ids)
        completions.append(recorder.take(completion, number))
        conversation.messages.append(Message("assistant", completion.text, completion.reasoning))
        conversation.messages += turn.then
    return Record(recorder.segments(), sampled, completions)


def _writer(turns: Iterator[Turn], using: Renderer, vocabulary: int) -> Any:
    def write(prompt: Ints, sampling: Sampling) -> Sequence[int]:
        turn = next(turns)
        ids = [token % vocabulary for token in turn.ids]
        return [token for token in ids if token not in using.stop_ids] + ([using.stop_ids[0]] if turn.ended else [])

    return write


def check(name: str, episode: Episode, seen: set[str]) -> None:
    using, words = renderer(name), tokenizer(name.split("-")[0])
    record = asyncio.run(play(using, len(words), episode))
    recorded: dict[int, list[int]] = {number: [] for number in range(len(episode.turns))}
    for segment in record.segments:
        assert int(segment.mask.sum()) == len(segment.logprobs)
        for span in segment.spans:
            recorded[span.turn] += segment.ids[span.start : span.stop].tolist()
    for number, ids in enumerate(record.sampled):
        assert recorded[number] == ids.tolist(), "sampled ids stand in the segments verbatim, once, under the mask"
    expected = [-(index + 1) / 64 for ids in record.sampled for index in range(len(ids))]
    assert [value for segment in record.segments for value in segment.logprobs.tolist()] == expected
    if name in APPENDING and not using.stop_ids[1:]:
        assert len(record.segments) <= 1
    again = [ints(words.encode(words.decode(ids.tolist()), add_special_tokens=False)) for ids in record.sampled]
    seen.add("same" if all(map(np.array_equal, record.sampled, again)) else "different")
    # What a pipeline that re-tokenises would have trained on is told apart from what was sampled, exactly where it differs.
    assert (_digest(record.sampled) == _digest(again)) == all(map(np.array_equal, record.sampled, again))


def _digest(sampled: list[Ints]) -> str:
    recorder = SegmentRecorder()
    for number, ids in enumerate(sampled):
        recorder.add(Tokens(ints([]), ids, floats(np.zeros(len(ids)))), number)
    return Trajectory(TASK, StopReason.TERMINATED, segments=recorder.segments()).digest()


RANDOM_IDS = Episode(
    [Message("user", "x")],
    [Turn(ids.tolist(), True, [Message("user", "y")]) for ids in np.random.default_rng(0).integers(0, 10_000, (5, 8))],
)
"""Ids that no tokenizer would write in this order, so that tokenizing their text again gives other ids."""


SLOW = (pytest.mark.slow, pytest.mark.timeout(1800))


@pytest.mark.parametrize("count", [40, pytest.param(90, marks=SLOW), pytest.param(910, marks=(*SLOW, pytest.mark.full))])
@pytest.mark.parametrize("name", [*RENDERERS, pytest.param("smollm2", marks=SLOW)])
def test_what_was_sampled_is_what_is_recorded(name: str, count: int) -> None:
    seen: set[str] = set()

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(episodes())
    @example(RANDOM_IDS)
    def hold(episode: Episode) -> None:
        check(name, episode, seen)

    hold()
    assert "different" in seen, "the test is blind if re-tokenising never changes anything"
    assert count == 40 or "same" in seen


@pytest.mark.parametrize("name", ["chatml", "llama3", "qwen3", "qwen3published", "lossy", "bytes", "metaspace"])
def test_a_conversation_with_tools_alone_is_one_segment(name: str) -> None:
    using, words = renderer(name), tokenizer(name)
    turns = st.builds(
        Turn, st.lists(st.integers(0, 10_000), max_size=8), st.just(True), st.lists(answers, min_size=1, max_size=2)
    )

    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.builds(Episode, st.just([Message("user", "task")]), st.lists(turns, min_size=1, max_size=5)))
    def hold(episode: Episode) -> None:
        assert len(asyncio.run(play(using, len(words), episode)).segments) == 1

    hold()


@tool
async def search(query: str) -> str:
    """Finds text."""
    return f"what is known about {query}"


class Answers(AsyncEnv):
    """Asks one question and takes the first answer."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        return "Which river is longest?", {}

    async def step(self, action: str) -> Step:
        return Step("over", 1.0, True, False, {"success": True})


@pytest.mark.parametrize("family", [None, "qwen3"])
async def test_nine_turns_of_thinking_and_calling_are_one_segment_with_qwen3(family: str | None) -> None:
    words = tokenizer("qwen3published")
    call = format_call(ToolCall("search", {"query": "rivers of the world"}))
    written = [f"<think>\nI should look up part {turn}.\n</think>\n\n{call}" for turn in range(8)]
    script = iter([*written, "<think>\nNow I know.\n</think>\n\nThe Nile"])
    prompts: list[Ints] = []

    def write(prompt: Ints, sampling: Sampling) -> Sequence[int]:
        prompts.append(prompt)
        return [*words.encode(next(script)), words.eos_token_id]

    policy = SampledPolicy(renderer_for(words, family=family), ScriptedEngine(write))
    (trajectory,) = [one async for one in rollout(lambda: UseTools(Answers(), [search]), policy, n=1)]
    assert (len(trajectory.turns), trajectory.failures) == (9, ())
    (segment,) = trajectory.segments
    assert len(segment.ids) < 0.5 * sum(len(prompt) for prompt in prompts), "nothing is computed or trained twice"
    last = words.decode(prompts[-1].tolist())
    assert last.count("<think>") == 8, "the thinking that led to a call stays"
    assert last.count("<|im_start|>user\n<tool_response>\nwhat is known about rivers of the world\n</tool_response>") == 8


def talk(n: int) -> Episode:
    turns = [Turn([30 + number], True, [Message("user", f"o{number}")]) for number in range(n)]
    return Episode([Message("user", "task")], turns)


@pytest.mark.parametrize(
    ("history", "segments"),
    [(FullHistory(), 1), (Window(2), 4), (LastObservation(), 6), (Summary(4), 2)],
    ids=["full", "window", "last", "summary"],
)
async def test_a_history_implies_its_segments(history: History, segments: int) -> None:
    episode = talk(6)
    if isinstance(history, Summary):  # the fifth thing written is the summary
        episode.turns.insert(4, Turn([77], True, []))
        record = await play_with_notes(episode, history)
    else:
        record = (await play(renderer("chatml"), 414, episode, history)).segments
    assert len(record) == segments
    assert sum(int(segment.mask.sum()) for segment in record) == 2 * len(episode.turns), "each turn: one id and the stop token"


async def play_with_notes(episode: Episode, history: History) -> tuple[Segment, ...]:
    using = renderer("chatml")
    policy = SampledPolicy(using, ScriptedEngine(_writer(iter(episode.turns), using, 414)), Sampling(64), history=history)
    conversation, recorder = Conversation(TASK, make_async(TASK.env)), SegmentRecorder()
    conversation.messages += episode.start
    for number in range(len(episode.turns) - 1):
        completion = await policy.act(conversation)
        recorder.take(completion, number)
        conversation.messages += [Message("assistant", completion.text), Message("user", f"o{number}")]
        if number == 4:
            assert len(completion.notes) == 1
            shown = tokenizer("chatml").decode(completion.tokens.prompt.tolist()) if completion.tokens else ""
            assert "task\n\nYour summary so far" in shown
            assert "o2" not in shown
            assert "o3" in shown
    return recorder.segments()


def text_engine(text: str, **options: Any) -> ScriptedEngine:
    words = tokenizer("chatml")
    return ScriptedEngine(lambda prompt, sampling: [*words.encode(text), words.eos_token_id], **options)


async def act(policy: SampledPolicy, observation: str = "hello") -> Completion:
    conversation = Conversation(TASK, make_async(TASK.env))
    conversation.messages.append(Message("user", observation))
    return await policy.act(conversation)


ROOM = 2


@pytest.mark.parametrize(
    ("reply", "room", "sampling", "text", "finish", "sampled"),
    [
        ("hi", None, Sampling(), "", Finish.OVERFLOW, None),  # the prompt alone is longer than the context
        ("abcdefgh", ROOM, Sampling(), None, Finish.OVERFLOW, ROOM),
        ("abcdefgh", 1000, Sampling(3), None, Finish.LENGTH, 3),
        ("", 1000, Sampling(), "", Finish.STOP, 1),
        ("a<|im_end|>b", 1000, Sampling(), "a", Finish.STOP, 2),
        ("a</x>b", 1000, Sampling(stop=("</x>",)), "a</x>", Finish.STOP, None),
    ],
    ids=["full context", "filled context", "cut", "empty", "stop id", "stop string"],
)
async def test_how_a_reply_ends(
    reply: str, room: int | None, sampling: Sampling, text: str | None, finish: Finish, sampled: int | None
) -> None:
    length = 5 if room is None else len(renderer("chatml").first([Message("user", "hello")])) + room
    completion = await act(SampledPolicy(renderer("chatml"), text_engine(reply, context_length=length), sampling))
    assert completion.finish is finish
    assert text is None or completion.text == text
    if sampled is not None:
        assert completion.tokens is not None
        assert len(completion.tokens.ids) == sampled
        assert finish is Finish.STOP or tokenizer("chatml").eos_token_id not in completion.tokens.ids.tolist()
    elif finish is Finish.OVERFLOW:
        assert completion == Completion("", Finish.OVERFLOW)


async def test_thinking_is_told_apart_and_dropped_from_a_faithful_prompt() -> None:
    words = tokenizer("qwen3")
    reply = [*words.encode("<think>\nhm\n</think>\n\n\\boxed{3}"), words.eos_token_id]
    seen: list[str] = []

    def script(prompt: Ints, sampling: Sampling) -> Sequence[int]:
        seen.append(words.decode(prompt.tolist()))
        return reply

    policy = SampledPolicy(renderer("qwen3"), ScriptedEngine(script))
    conversation = Conversation(TASK, make_async(TASK.env))
    conversation.messages.append(Message("user", "q"))
    completion = await policy.act(conversation)
    assert (completion.text, completion.reasoning) == ("\\boxed{3}", "hm")
    conversation.messages += [Message("assistant", completion.text, completion.reasoning), Message("user", "r")]
    await policy.act(conversation)
    assert "hm" not in seen[1]
    assert "\\boxed{3}" in seen[1]


async def test_an_edited_reply_is_not_taken_for_ours() -> None:
    policy = SampledPolicy(renderer("chatml"), text_engine("one"))
    conversation, recorder = Conversation(TASK, make_async(TASK.env)), SegmentRecorder()
    conversation.messages.append(Message("user", "q"))
    recorder.take(await policy.act(conversation), 0)
    conversation.messages += [Message("assistant", "two"), Message("user", "r")]
    recorder.take(await policy.act(conversation), 1)
    assert len(recorder.segments()) == 2


async def test_shots_stand_before_the_task_and_their_ids_are_computed_once() -> None:
    prompts: list[list[int]] = []

    def script(prompt: Ints, sampling: Sampling) -> Sequence[int]:
        prompts.append(prompt.tolist())
        return [40, using.stop_ids[0]]

    using = renderer("chatml")
    shots = (Message("user", "1+1"), Message("assistant", "2"))
    policy = SampledPolicy(using, ScriptedEngine(script), shots=FixedShots(shots))
    for observation in ("2+2", "3+3"):
        await act(policy, observation)
        assert prompts[-1] == using.first([*shots, Message("user", observation)]).tolist()
    (prefix,) = policy._prefixes.values()
    assert prefix is not None
    assert tokenizer("chatml").decode(prefix.tolist()).endswith("assistant\n2<|im_end|>")


async def test_no_example_of_a_data_set_is_the_row_at_hand(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(f'{{"question": "Q{n}", "answer": "{n}"}}\n' for n in range(4)))
    shots = OracleShots(3)
    for index in range(4):
        messages = await shots.messages(Task(f"data:{file}", seed=7, index=index))
        asked = [text_of(message.content).partition("\n")[0] for message in messages[::2]]
        assert sorted(asked) == [f"Q{n}" for n in range(4) if n != index]


async def test_oracle_shots_are_solved_episodes_of_other_tasks() -> None:
    shots = OracleShots(3)
    messages = await shots.messages(TASK)
    assert [message.role for message in messages[:2]] == ["user", "assistant"]
    assert messages[-1].role == "assistant"
    assert sum("You are playing" in str(message.content) for message in messages) == 3
    assert await shots.messages(msgspec.structs.replace(TASK, seed=9)) == messages
    assert await shots.messages(msgspec.structs.replace(TASK, split="test")) == messages, "nothing held out is shown"
