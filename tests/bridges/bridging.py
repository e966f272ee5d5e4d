"""What the contract tests of all bridges share: rough episodes, a scripted model, and the comparison token by token.

``Rough`` is GuessTheNumber with the seed in its first observation; every eighth task breaks at its second step. ``Speller`` is
the model. Its next tokens are a function of the tokens before, so an episode comes out the same in any loop, in any order, and
in any process: ``expected`` plays the tasks in Palestra's own loop, and ``compare`` holds the rows of a trainer against them.
Nothing here imports another framework, nor torch.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from palestra import Message, Step, StopReason, Task, Trajectory
from palestra.checking.report import CheckReport
from palestra.core import Conversation, Sampling
from palestra.foundation.encoding import Ints, ints
from palestra.inference.engines.calls import CallEngine, Sampled
from palestra.inference.rendering import renderer_for
from palestra.policies.sampled import SampledPolicy
from palestra.rollouts import EpisodeKey, EpisodeRunner, RolloutOptions
from palestra.suite.games.guess_the_number import GuessTheNumber
from palestra.trajectory import Completion, Finish, text_of

GAME = "game:GuessTheNumber-v0-easy"
ROUGH, WHOLE = f"{__name__}:Rough", f"{__name__}:Whole"
MAX_TOKENS = 16
CONTEXT = 2048
NARROW = 260
"""A context length at which some episodes overflow."""


class Rough(GuessTheNumber):
    """GuessTheNumber with the seed of the task in its first observation, and a reward of its own for every turn.

    It breaks if the seed is 7 modulo 8.
    """

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(seed=seed, task=task)
        self.number = task.seed if task is not None else seed or 0
        return f"Game {self.number}. {observation}", info

    def step(self, action: str) -> Any:
        if self.number % 8 == 7 and self.turn == 1:
            raise RuntimeError("broken on purpose")
        return self.paid(super().step(action))

    def paid(self, step: Step) -> Step:
        """A different reward for every turn, exact in every float type: a reward in the wrong turn is found."""
        return step._replace(reward=round(step.reward * 64) / 64 + self.turn / 256)


class Whole(Rough):
    """The same without breaks, for trainers that cannot record a failed episode."""

    def step(self, action: str) -> Any:
        return self.paid(GuessTheNumber.step(self, action))


def rough_tasks(count: int, env: str = ROUGH) -> list[Task]:
    return [Task(env, seed) for seed in range(count)]


class Speller:
    """The scripted model: one random guess per turn; every tenth turn is cut by the token limit.

    A share ``apart`` of the turns is spelled in other tokens than the tokenizer would choose, where it can: a bridge that
    decodes and encodes is found. The log-probs are random multiples of 1/64, exact in every float type, and differ by turn.
    """

    def __init__(self, tokenizer: Any, stop_id: int | None = None, cuts: float = 0.1, apart: float = 1 / 3) -> None:
        self._tokenizer = tokenizer
        self._stop_id = tokenizer.eos_token_id if stop_id is None else stop_id
        self._cuts = cuts
        self._apart = apart

    def __call__(self, prompt_ids: Sequence[int], max_tokens: int = MAX_TOKENS, salt: object = "") -> Sampled:
        chance = random.Random(f"{salt}{','.join(map(str, prompt_ids))}")
        guess = f"\\boxed{{{chance.randint(1, 50)}}}"
        ids = [*self._encoded(guess, apart=chance.random() < self._apart), self._stop_id]
        if chance.random() < self._cuts:
            ids = (ids[:-1] * max_tokens)[:max_tokens]  # rambles until the limit
        stopped = len(ids) <= max_tokens and ids[-1] == self._stop_id
        ids = ids[:max_tokens]
        return Sampled(ids, [-chance.randint(1, 640) / 64 for _ in ids], stopped)

    def _encoded(self, text: str, *, apart: bool) -> list[int]:
        parts = list(text) if apart else [text]
        ids = [one for part in parts for one in self._tokenizer.encode(part, add_special_tokens=False)]
        # A tokenizer may add a space to single characters: then only its own spelling says the same.
        if self._tokenizer.decode(ids) != text or len(ids) >= MAX_TOKENS:
            ids = self._tokenizer.encode(text, add_special_tokens=False)
        return list(ids)

    def engine(self, context_length: int = CONTEXT, *, salted: bool = False) -> CallEngine:
        """If ``salted``, the members of a group play differently: their calls have different seeds."""

        async def call(prompt_ids: list[int], sampling: Sampling) -> Sampled:
            return self(prompt_ids, sampling.max_tokens, f"{sampling.seed} " if salted else "")

        return CallEngine(call, context_length=context_length)


def expected(
    tasks: Sequence[Task],
    tokenizer: Any,
    *,
    max_tokens: int = MAX_TOKENS,
    context_length: int = CONTEXT,
    options: RolloutOptions | None = None,
    apart: float = 1 / 3,
    renderer: Any = None,
) -> list[Trajectory]:
    """What Palestra's own loop records when ``Speller`` plays ``tasks``."""
    policy = SampledPolicy(
        renderer or renderer_for(tokenizer, append_only=True),
        Speller(tokenizer, apart=apart).engine(context_length),
        Sampling(max_tokens=max_tokens),
    )

    async def play_all() -> list[Trajectory]:
        async with EpisodeRunner(policy, options or RolloutOptions(retries=0)) as runner:
            keys = [EpisodeKey(task, group=number) for number, task in enumerate(tasks)]
            return [one for (one,) in await asyncio.gather(*map(runner.play, keys))]

    return asyncio.run(play_all())


class Row(NamedTuple):
    """One sequence as a trainer holds it, without padding. Mask and log-probs have one entry per token of the response."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]


def compare(rows: Sequence[Row], trajectory: Trajectory) -> None:
    """Each segment of ``trajectory`` is a row: the same ids, mask and log-probs, token by token.

    An episode without a sampled token may stand as masked tokens.
    """
    if not trajectory.segments:
        assert not any(flag for row in rows for flag in row.mask)
        return
    for (prompt, response, mask, logprobs), segment in zip(rows, trajectory.segments, strict=True):
        start = segment.spans[0].start
        assert prompt + response == segment.ids.tolist()
        assert len(prompt) == start
        assert mask == segment.mask[start:].astype(int).tolist()
        assert [value for value, flag in zip(logprobs, mask, strict=True) if flag] == segment.logprobs.tolist()


def assert_rough(played: Sequence[Trajectory], *, failures: bool = True, overflow: bool = False) -> None:
    """The episodes are of the kinds that a bridge has to carry: several turns, cuts, overflow, failures if it can say so."""
    assert max(len(one.turns) for one in played) > 2
    assert {one.stop for one in played} >= {StopReason.TERMINATED, StopReason.TURN_LIMIT, StopReason.LENGTH_CUT}
    assert any(one.stop.failed for one in played) == failures
    assert any(one.stop is StopReason.CONTEXT_OVERFLOW for one in played) == overflow
    assert len({one.reward for one in played if not one.stop.failed}) > 2


class Forgetting:
    """A renderer whose template rewrites what stands before: every turn starts a new segment."""

    def __init__(self, tokenizer: Any) -> None:
        self._inner = renderer_for(tokenizer)
        self.stop_ids = self._inner.stop_ids
        self.read = self._inner.read

    def first(self, messages: Sequence[Message]) -> Ints:
        return ints([len(messages), *self._inner.first(messages)])

    def extend(self, *_: Any) -> None:
        return None


class Afresh(Forgetting):
    """Renders every prompt again from the messages. A reply that was spelled in other tokens starts a new segment."""

    def first(self, messages: Sequence[Message]) -> Ints:
        return self._inner.first(messages)


class Rewriting(Forgetting):
    """The same for bridges that exchange text: what it renders is text that the tokenizer encodes to the same ids."""

    def first(self, messages: Sequence[Message]) -> Ints:
        # The first message is longer in every turn, so that no prompt is the beginning of the next.
        first, *rest = messages
        marked = Message(first.role, f"{'Game ' * (len(messages) // 2)}{text_of(first.content)}")
        return self._inner.first([marked, *rest])


def written(texts: Sequence[str]) -> Completion:
    """The scripted model for bridges that exchange text: a function of the conversation. Every tenth reply is cut."""
    chance = random.Random("\n".join(texts))
    text = f"\\boxed{{{chance.randint(1, 50)}}}" if chance.random() < 0.9 else "I do not know."
    return Completion(text, Finish.LENGTH if chance.random() < 0.1 else Finish.STOP)


class Writer:
    """``written`` as a policy of Palestra."""

    name = "writer"

    async def act(self, conversation: Conversation) -> Completion:
        return written([text_of(message.content) for message in conversation.messages])


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait until something has happened in another thread, with a limit against hangs."""
    until = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


def run(coroutine: Any) -> Any:
    """Run ``coroutine`` in a loop of its own, with a limit against hangs."""
    return asyncio.run(asyncio.wait_for(coroutine, 600))


def outcome(report: CheckReport) -> dict[str, list[str]]:
    """The names of the checks of ``palestra check`` that did not pass, by what became of them."""
    findings = [(str(finding.status), finding.check) for finding in report.findings]
    return {status: [check for other, check in findings if other == status] for status, _ in findings if status != "pass"}
