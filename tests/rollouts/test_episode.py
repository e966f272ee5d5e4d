import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from palestra import AsyncEnv, Completion, Conversation, Step, StopReason, Task, Trajectory
from palestra.errors import Boundary, GraderError, ToolError
from palestra.foundation.encoding import floats, ints
from palestra.rollouts import EpisodeKey, run_episode
from palestra.trajectory import Content, Finish, Phase, Tokens, Usage
from tests.leftovers import nothing_left_here

GO: tuple[str, dict[str, Any]] = ("go", {})


class Scripted(AsyncEnv):
    """Does what the test says in each verb: returns a value, or calls a function for it."""

    def __init__(self, reset: Any = GO, step: Any = None, close: Any = None) -> None:
        self.script = {"reset": reset, "step": step or Step("end", 1.0, True, False, {}), "close": close}
        self.closed = 0

    async def _do(self, verb: str, *arguments: str) -> Any:
        planned = self.script[verb]
        if callable(planned):
            planned = planned(*arguments)
        return await planned if asyncio.iscoroutine(planned) else planned

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return await self._do("reset")  # type: ignore[no-any-return]

    async def step(self, action: str) -> Step:
        return await self._do("step", action)  # type: ignore[no-any-return]

    async def close(self) -> None:
        self.closed += 1
        await self._do("close")


class One:
    """A supply of one environment, which keeps the books."""

    def __init__(self, env: AsyncEnv | Callable[[], Any]) -> None:
        self.env = env
        self.sound: list[bool] = []

    async def acquire(self, task: Task) -> AsyncEnv:
        if isinstance(self.env, AsyncEnv):
            return self.env
        found = self.env()
        return await found if asyncio.iscoroutine(found) else found  # type: ignore[no-any-return]

    async def give_back(self, task: Task, env: AsyncEnv, *, sound: bool) -> None:
        self.sound.append(sound)
        await env.close()


class Player:
    """Answers with what the test says."""

    def __init__(self, answer: Any = "act") -> None:
        self.answer = answer

    async def act(self, conversation: Conversation) -> Completion:
        answer = self.answer(conversation) if callable(self.answer) else self.answer
        answer = await answer if asyncio.iscoroutine(answer) else answer
        return Completion(answer) if isinstance(answer, str) else answer


async def play(env: Any, policy: Any = None, deadline: float = 5.0, **options: Any) -> Trajectory:
    supply = One(env)
    (trajectory,) = await run_episode(supply, policy or Player(), EpisodeKey(Task("t", 1)), deadline=deadline, **options)
    if isinstance(env, Scripted):
        assert env.closed == 1
        assert supply.sound == [not trajectory.stop.failed or trajectory.failures[0].phase is Phase.CLOSE]
    return trajectory


def raiser(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def forever(*_: object) -> Any:
    return asyncio.sleep(3600)


async def cancelled_inside(*_: object) -> Any:
    inner = asyncio.ensure_future(asyncio.sleep(3600))
    inner.cancel()
    await inner


PHASES: dict[Phase, Callable[[Any], tuple[Any, Any]]] = {
    Phase.BOOT: lambda fault: (fault, None),
    Phase.RESET: lambda fault: (Scripted(reset=fault), None),
    Phase.ACT: lambda fault: (Scripted(), Player(fault)),
    Phase.STEP: lambda fault: (Scripted(step=fault), None),
    Phase.CLOSE: lambda fault: (Scripted(close=fault), None),
}
ODD = [
    KeyError("x"),
    SystemExit(3),
    TimeoutError("my own"),
    StopIteration(),
    ExceptionGroup("g", [OSError()]),
    StopAsyncIteration(),
    MemoryError(),
]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
async def test_whatever_is_raised_is_data_with_its_phase_and_boundary(phase: Phase, error: BaseException) -> None:
    async with nothing_left_here():
        trajectory = await play(*PHASES[phase](raiser(error)))
    (failure,) = trajectory.failures
    assert failure.phase is phase
    assert failure.boundary is (Boundary.POLICY if phase is Phase.ACT else Boundary.ENV)
    assert failure.kind in (type(error).__name__, "RuntimeError")  # a coroutine cannot raise StopIteration
    if phase is Phase.CLOSE:
        assert (trajectory.stop, trajectory.reward) == (StopReason.TERMINATED, 1.0)
    else:
        assert (trajectory.stop, trajectory.reward) == (StopReason.ERROR, None)


@pytest.mark.parametrize("phase", PHASES)
async def test_the_deadline_covers_every_phase(phase: Phase) -> None:
    async with nothing_left_here():
        trajectory = await play(*PHASES[phase](forever), deadline=0.2)
    (failure,) = trajectory.failures
    assert (failure.phase, failure.kind) == (phase, "Deadline")
    assert failure.message == f"the episode's deadline of 0.2 s passed while waiting for {phase.value}"
    assert trajectory.stop is (StopReason.TERMINATED if phase is Phase.CLOSE else StopReason.DEADLINE)
    assert trajectory.seconds < 60


@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancellation_from_inside_is_a_failure_like_any_other(phase: Phase) -> None:
    trajectory = await play(*PHASES[phase](cancelled_inside))
    (failure,) = trajectory.failures
    assert (failure.phase, failure.kind) == (phase, "CancelledError")


@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancellation_from_outside_passes_after_the_environment_was_given_back(
    phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["palestra.rollouts.driving"], "STOP_SECONDS", 0.2)
    reached = asyncio.Event()

    async def wait(*_: object) -> Any:
        reached.set()
        await asyncio.sleep(3600)

    env, policy = PHASES[phase](wait)
    async with nothing_left_here():
        task = asyncio.ensure_future(run_episode(One(env), policy or Player(), EpisodeKey(Task("t", 1)), deadline=5))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert phase is Phase.BOOT or env.closed == 1


async def test_both_the_step_and_the_close_that_failed_are_on_record() -> None:
    trajectory = await play(Scripted(step=raiser(KeyError("a")), close=raiser(KeyError("b"))))
    assert [failure.phase for failure in trajectory.failures] == [Phase.STEP, Phase.CLOSE]


@pytest.mark.parametrize(("error", "boundary"), [(ToolError("x"), Boundary.TOOL), (GraderError("x"), Boundary.GRADER)])
async def test_an_error_that_knows_its_boundary_is_believed(error: Exception, boundary: Boundary) -> None:
    assert (await play(Scripted(step=raiser(error)))).failures[0].boundary is boundary


@pytest.mark.parametrize(
    "step",
    [
        7,
        ("too", "few"),
        ("o", "no number", True, False, {}),
        ("o", float("nan"), True, False, {}),
        ("o", 1.0, True, False, [1]),
        (7, 1.0, False, False, {}),
        (["a list"], 1.0, False, False, {}),
        (("a", "tuple"), 1.0, False, False, {}),
        ("o", 1.0, False, True, {"stop_reason": "boredom"}),
        ("o", 1.0, True, False, {"rewards": {"x": float("inf")}}),
        ("o", 1.0, True, False, {"rewards": 7}),
        ("o", 1.0, False, False, {"player": ["unhashable"]}),
    ],
    ids=str,
)
async def test_a_step_of_the_wrong_type_is_the_environments_fault(step: Any) -> None:
    (failure,) = (await play(Scripted(step=step))).failures
    assert (failure.phase, failure.boundary) == (Phase.STEP, Boundary.ENV)


@pytest.mark.parametrize("reset", [None, "only text", ("o", None), (7, {}), (None, {})], ids=str)
async def test_a_reset_of_the_wrong_type_is_the_environments_fault(reset: Any) -> None:
    (failure,) = (await play(Scripted(reset=lambda: reset))).failures
    assert (failure.phase, failure.boundary) == (Phase.RESET, Boundary.ENV)


async def test_a_policy_of_the_wrong_type_is_the_policys_fault() -> None:
    (failure,) = (await play(Scripted(), Player(7))).failures
    assert (failure.boundary, failure.message) == (
        Boundary.POLICY,
        "the policy Player returned a int; expected text or a Completion",
    )


@pytest.mark.parametrize(
    ("said", "stop"),
    [(StopReason.TOKEN_LIMIT, StopReason.TOKEN_LIMIT), ("budget", StopReason.TRUNCATED), ("error", StopReason.TRUNCATED)],
)
async def test_a_cut_keeps_its_reason_and_cannot_pose_as_a_failure(said: str, stop: StopReason) -> None:
    trajectory = await play(Scripted(step=Step("", 0.5, False, True, {"stop_reason": said})))
    assert (trajectory.stop, trajectory.reward) == (stop, 0.5)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        (Finish.LENGTH, StopReason.LENGTH_CUT),
        (Finish.OVERFLOW, StopReason.CONTEXT_OVERFLOW),
        (Finish.EMPTY, StopReason.EMPTY_COMPLETION),
    ],
)
async def test_a_completion_that_was_cut_never_reaches_the_environment(finish: Finish, stop: StopReason) -> None:
    trajectory = await play(Scripted(step=raiser(AssertionError())), Player(Completion("half a th", finish)))
    assert (trajectory.stop, trajectory.failures, trajectory.turns[0].action) == (stop, (), "half a th")


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.OVERFLOW, Finish.EMPTY])
async def test_a_cut_as_invalid_pays_what_an_empty_action_pays_and_ends_as_cut(finish: Finish) -> None:
    acted: list[str] = []

    def step(action: str) -> Step:
        acted.append(action)
        return Step("again", -0.25, False, False, {"format_error": True})

    trajectory = await play(Scripted(step=step), Player(Completion("open", finish)), cut_as_invalid=True)
    assert acted == [""]
    assert (trajectory.reward, trajectory.terminated, trajectory.turns[0].action) == (-0.25, False, "open")
    failing = await play(Scripted(step=raiser(ValueError("no"))), Player(Completion("open", finish)), cut_as_invalid=True)
    assert (failing.stop, failing.reward) == (StopReason.ERROR, None)


async def test_tokens_go_to_segments_and_the_rest_of_the_completion_stays() -> None:
    tokens = Tokens(ints([1, 2]), ints([3]), floats([-0.5]))
    completion = Completion("act", reasoning="hm", tokens=tokens, usage=Usage(2, 1))
    trajectory = await play(Scripted(), Player(completion))
    assert trajectory.turns[0].completion == Completion("act", reasoning="hm", usage=Usage(2, 1))
    assert trajectory.segments[0].ids.tolist() == [1, 2, 3]


async def test_one_dict_handed_out_again_and_again_is_recorded_as_it_was() -> None:
    info: dict[str, Any] = {}

    def step(action: str) -> Step:
        info["turn"] = info.get("turn", 0) + 1
        return Step("", 0.0, info["turn"] == 3, False, info)

    trajectory = await play(Scripted(reset=("", info), step=step))
    assert [turn.info["turn"] for turn in trajectory.turns] == [1, 2, 3]
    assert trajectory.info == {}


async def test_an_episode_that_never_waits_notices_its_deadline_and_lets_others_live() -> None:
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    neighbour = asyncio.ensure_future(other())
    trajectory = await play(Scripted(step=Step("", 0.0, False, False, {})), deadline=0.2)
    neighbour.cancel()
    assert trajectory.stop is StopReason.DEADLINE
    assert others > 10


async def test_an_environment_that_held_the_loop_beyond_the_deadline_can_still_close() -> None:
    freed = []

    def hold(*_: object) -> Step:
        import time

        time.sleep(0.25)
        return Step("", 1.0, True, False, {})

    async def free() -> None:
        await asyncio.sleep(0.001)
        freed.append(True)

    await play(Scripted(step=hold, close=free), deadline=0.2)
    assert freed


# several players


def duel(length: int = 4, **last: Any) -> Scripted:
    turn = 0

    def step(action: str) -> Step:
        nonlocal turn
        turn += 1
        over = turn == length
        info = {"player": "ab"[turn % 2], **(last if over else {})}
        return Step(f"{action} for {info['player']}", 0.0, over, False, info)

    return Scripted(reset=("for a", {"player": "a"}), step=step)


async def test_each_player_has_its_own_conversation_policy_and_trajectory() -> None:
    players = {name: Player(lambda c, name=name: f"{name}{c.turn}") for name in "ab"}
    a, b = await run_episode(One(duel(rewards={"a": -1.0, "b": 1.0})), players, EpisodeKey(Task("t")), deadline=5)
    assert (a.player, [turn.observation for turn in a.turns], [turn.action for turn in a.turns]) == (
        "a",
        ["for a", "b0 for a"],
        ["a0", "a1"],
    )
    assert (b.player, [turn.action for turn in b.turns]) == ("b", ["b0", "b1"])
    assert (a.reward, b.reward) == (-1.0, 1.0)
    assert [turn.reward for turn in b.turns] == [0.0, 1.0], "the actor is not paid twice"


async def test_a_reward_before_the_first_turn_waits_for_it() -> None:
    rewards = iter([{"b": 2.0}, {}, {}, {"a": 1.0}])

    def step(action: str, env: Scripted) -> Step:
        result: Step = inner(action)
        return result._replace(info={**result.info, "rewards": next(rewards)})

    env = duel()
    inner = env.script["step"]
    env.script["step"] = lambda action: step(action, env)
    a, b = await run_episode(One(env), Player(), EpisodeKey(Task("t")), deadline=5)
    assert [turn.reward for turn in b.turns] == [2.0, 0.0]
    assert [turn.reward for turn in a.turns] == [0.0, 1.0]


async def test_a_player_without_a_policy_is_the_callers_mistake() -> None:
    (only,) = await run_episode(One(duel()), {"a": Player()}, EpisodeKey(Task("t")), deadline=5)
    assert only.failures[0].message == "no policy for player \"b\"; there are ['a']"
    assert (only.player, only.failures[0].boundary, only.reward) == ("a", Boundary.POLICY, None)


async def test_payments_that_add_up_beyond_the_bound_are_the_environments_failure() -> None:
    steps = iter([Step("", 1e9, False, False, {"player": "b"}), Step("", 0.0, True, False, {"rewards": {"a": 1e9}})])
    env = Scripted(reset=("", {"player": "a"}), step=lambda action: next(steps))
    a, b = await run_episode(One(env), Player(), EpisodeKey(Task("t")), deadline=5)
    assert (a.stop, b.stop) == (StopReason.ERROR, StopReason.ERROR)
    assert "a reward must be a number" in a.failures[0].message
    assert all(abs(turn.reward) <= 1e9 for turn in a.turns + b.turns)


async def test_a_player_who_is_paid_and_never_acts_is_on_record() -> None:
    step = Step("", 1.0, True, False, {"rewards": {"a": 1.0, "b": 7.0, "c": 0.0}})
    (a,) = await run_episode(One(Scripted(reset=("", {"player": "a"}), step=step)), Player(), EpisodeKey(Task("t")))
    assert (a.player, a.reward) == ("a", 1.0)
    assert [failure.message for failure in a.failures] == [
        'player "b" never acted, so no trajectory has the reward of 7 that it was paid'
    ]


@pytest.mark.parametrize("player", [5, b"a", None, ["a"]])
async def test_a_player_is_named_by_text(player: Any) -> None:
    first = await play(Scripted(reset=("", {"player": player})))
    later = await play(Scripted(step=Step("", 0.0, False, False, {"player": player})))
    for trajectory in (first, later):
        assert trajectory.failures[0].message.startswith("info['player'] must be the name of a player")
        assert trajectory.player == ""
