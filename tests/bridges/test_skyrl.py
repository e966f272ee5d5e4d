"""SkyRL's own ``SkyRLGymGenerator`` and checks with a scripted engine: tokens, masks, log-probs and rewards are equal."""

import gc
import sys
import threading
import typing
from collections.abc import Sequence
from typing import Any

import pytest
import typing_extensions

pytest.importorskip("skyrl_gym")
if sys.version_info < (3, 12):  # skyrl 0.4 asks for 3.12; its classes need only this part of it
    typing.TypedDict = typing_extensions.TypedDict

import skyrl_gym
from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
from skyrl.train.generators import SkyRLGymGenerator
from skyrl.train.generators.base import BatchMetadata, TrajectoryID
from skyrl.train.utils.trainer_utils import validate_generator_output

from palestra import StopReason, Task, Trajectory, flatten
from palestra.bridges import skyrl, skyrl_generator
from palestra.errors import UsageError
from palestra.foundation.encoding import floats
from palestra.rollouts import RolloutOptions
from tests.bridges import bridging
from tests.bridges.abandoned import EPISODES, HELD, Silent, all_closed, cut_off
from tests.bridges.bridging import (
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
    wait_for,
)
from tests.bridges.contract import FRAMEWORK

pytestmark = FRAMEWORK


class Mumbling(Speller):
    """Its cut replies hold no guess."""

    def __call__(self, prompt_ids: Sequence[int], max_tokens: int = MAX_TOKENS, salt: object = "") -> Any:
        sampled = super().__call__(prompt_ids, max_tokens, salt)
        return sampled if sampled.stopped else sampled._replace(ids=[sampled.ids[0]] * len(sampled.ids))


class Client:
    """The part of SkyRL's ``InferenceEngineInterface`` that generators call."""

    model_name = "scripted"

    def __init__(self, tokenizer: Any, model: type[Speller] = Speller) -> None:
        self.tokenizer, self.speller = tokenizer, model(tokenizer)
        self.open: set[str] = set()

    async def generate(self, request: Any, model: str | None = None) -> dict[str, Any]:
        (prompt,), (session,) = request["prompt_token_ids"], request["session_ids"]
        self.open.add(session)
        limit = (request.get("sampling_params") or {}).get("max_tokens", MAX_TOKENS)
        ids, logprobs, stopped, _ = self.speller(prompt, limit)
        return {
            "responses": [self.tokenizer.decode(ids, skip_special_tokens=True)],
            "response_ids": [list(ids)],
            "stop_reasons": ["stop" if stopped else "length"],
            "response_logprobs": [list(logprobs)],
        }

    async def finish_session(self, session: str) -> None:
        self.open.discard(session)


def config(**changes: Any) -> Any:
    cfg = GeneratorConfig(**{"max_turns": 20, "max_input_length": 2048, **changes})
    cfg.sampling_params.max_generate_length = MAX_TOKENS
    return cfg


def batch(tasks: Sequence[Task], members: int = 1) -> dict[str, Any]:
    rows = skyrl.task_rows(tasks)
    return {
        "prompts": [row["prompt"] for row in rows],
        "env_classes": [row["env_class"] for row in rows],
        "env_extras": [{} for _ in rows],
        "sampling_params": None,
        "trajectory_ids": [TrajectoryID(str(at // members), at % members) for at in range(len(rows))],
        "batch_metadata": BatchMetadata(3, "train"),
    }


def rows_of(output: Any) -> list[Row]:
    keys = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs")
    return [Row(*cells) for cells in zip(*(output[key] for key in keys), strict=True)]


def gym(tokenizer: Any, tasks: Sequence[Task], **changes: Any) -> Any:
    skyrl.register()
    cfg, client = config(**changes), Client(tokenizer, Mumbling)
    output = run(SkyRLGymGenerator(cfg, SkyRLGymConfig(), client, tokenizer).generate(batch(tasks)))
    validate_generator_output(len(tasks), output)
    return output


def test_skyrls_own_loop_gives_the_same_tokens_and_rewards(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = rough_tasks(200, WHOLE)
    output = gym(tokenizer, tasks)
    # SkyRL hands a cut reply to the environment. One that holds no guess ends this game, and pays as an empty action does.
    monkeypatch.setattr(bridging, "Speller", Mumbling)
    played = expected(tasks, tokenizer, options=RolloutOptions(retries=0, cut_as_invalid=True))
    assert_rough(played, failures=False)
    for row, one in zip(rows_of(output), played, strict=True):
        compare([row], one)
    assert [floats(row).tolist() for row in output["rewards"]] == [flatten(one)[0].rewards.tolist() for one in played]
    solved = [one.success for one in played]
    assert output["rollout_metrics"]["environment/success"] == pytest.approx(sum(map(bool, solved)) / len(solved))
    assert output["rollout_metrics"]["environment/turns"] == pytest.approx(sum(len(one.turns) for one in played) / len(played))


def test_a_full_context_ends_an_episode_of_skyrls_loop(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SkyRL limits the prompt, and Palestra prompt and reply: SkyRL's episodes are ours up to the first prompt too long."""
    tasks, limit = rough_tasks(200, WHOLE), NARROW - MAX_TOKENS
    output = gym(tokenizer, tasks, max_input_length=limit)
    monkeypatch.setattr(bridging, "Speller", Mumbling)
    played = expected(tasks, tokenizer, options=RolloutOptions(retries=0, cut_as_invalid=True))
    overflowed = 0
    for row, one, rewards, reason in zip(rows_of(output), played, output["rewards"], output["stop_reasons"], strict=True):
        (segment,) = one.segments
        start, kept = segment.spans[0].start, [span for span in segment.spans if span.start <= limit]
        # The last observation stands in the row, and nothing of it is trained on.
        end = kept[-1].stop
        assert (row.prompt + row.response)[:end] == segment.ids[:end].tolist()
        assert row.mask[: end - start] == segment.mask[start:end].astype(int).tolist()
        assert not any(row.mask[end - start :])
        known = [value for value, sampled in zip(row.logprobs, row.mask, strict=True) if sampled]
        assert known == segment.logprobs[: len(known)].tolist()
        assert sum(rewards) == sum(turn.reward for turn in one.turns[: len(kept)])
        if len(kept) < len(segment.spans):
            assert reason == "length"
            overflowed += 1
    assert overflowed > 10


def test_an_environment_that_fails_ends_the_batch_of_skyrls_loop(tokenizer: Any) -> None:
    with pytest.raises(RuntimeError, match="broken on purpose"):
        gym(tokenizer, rough_tasks(32))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Trajectory]:
    """Every trajectory that our generator hands to SkyRL."""
    seen: list[Trajectory] = []
    real = skyrl_generator._output

    def output(cfg: Any, played: Sequence[Trajectory], names: Any, filler: int) -> Any:
        seen.extend(played)
        return real(cfg, played, names, filler)

    monkeypatch.setattr(skyrl_generator, "_output", output)
    return seen


def test_our_generator_hands_over_the_trajectories_and_masks_the_failed_ones(tokenizer: Any, kept: list[Trajectory]) -> None:
    tasks, client = rough_tasks(200), Client(tokenizer)
    # Groups of four different tasks, so that a group has failed and scored members.
    cfg = config(max_input_length=NARROW - MAX_TOKENS)
    output = run(skyrl_generator.generator(cfg, client, tokenizer).generate(batch(tasks, members=4)))
    validate_generator_output(len(tasks), output)
    played = expected(tasks, tokenizer, context_length=NARROW)
    assert_rough(played, overflow=True)
    assert [one.stop for one in kept] == [one.stop for one in played]
    for at, (row, one, rewards) in enumerate(zip(rows_of(output), played, output["rewards"], strict=True)):
        if one.stop.failed:
            others = [other.reward for other in played[at - at % 4 : at - at % 4 + 4] if other.reward is not None]
            assert not any(row.mask)
            assert row.prompt + row.response == one.segments[0].ids.tolist()
            assert sum(rewards) == pytest.approx(sum(others) / len(others))
        else:
            compare([row], one)
            assert rewards == flatten(one)[0].rewards.tolist()
    cuts = [reason == "length" for reason in output["stop_reasons"]]
    assert cuts == [one.stop in (StopReason.LENGTH_CUT, StopReason.CONTEXT_OVERFLOW) for one in played]
    assert not client.open, "a session was not released"
    assert {one.seed for one in kept} == {3}, "the step of the trainer does not seed the episodes"


def test_several_segments_are_split_or_refused(tokenizer: Any, kept: list[Trajectory]) -> None:
    tasks, renderer = rough_tasks(24), Forgetting(tokenizer)
    with pytest.raises(UsageError, match="SkyRL takes one sequence per episode"):
        run(skyrl_generator.generator(config(), Client(tokenizer), tokenizer, renderer=renderer).generate(batch(tasks)))
    kept.clear()
    cfg = config(step_wise_trajectories=True)
    output = run(skyrl_generator.generator(cfg, Client(tokenizer), tokenizer, renderer=renderer).generate(batch(tasks)))
    validate_generator_output(len(tasks), output, step_wise=True)
    rows, at = rows_of(output), 0
    for number, one in enumerate(kept):
        last = at + len(one.segments) - 1
        for segment in one.segments:
            assert rows[at].prompt + rows[at].response == segment.ids.tolist()
            assert sum(rows[at].mask) == (0 if one.stop.failed else int(segment.mask.sum()))
            assert output["trajectory_ids"][at].instance_id == str(number)
            assert output["is_last_step"][at] is (at == last)
            at += 1
        if not one.stop.failed:
            assert sum(output["rewards"][last]) == pytest.approx(one.reward)
    assert at == len(rows)
    assert max(len(one.segments) for one in kept) > 2


def test_a_thousand_episodes_that_our_generator_abandons_leave_nothing(tokenizer: Any) -> None:
    silent, client = Silent(), Client(tokenizer)
    client.generate = silent  # type: ignore[method-assign]
    generator = skyrl_generator.generator(config(), client, tokenizer)

    async def abandon() -> None:
        await cut_off(generator.generate(batch([Task(HELD, seed) for seed in range(EPISODES)])), silent)

    with all_closed():
        run(abandon())


def test_a_thousand_episodes_that_skyrls_own_generator_abandons_leave_nothing(tokenizer: Any) -> None:
    """SkyRL never ends its pool of threads. They end by themselves, a moment after the generator has been collected."""
    skyrl.register()

    async def abandon() -> None:
        silent, client = Silent(), Client(tokenizer)
        client.generate = silent  # type: ignore[method-assign]
        loop = SkyRLGymGenerator(config(), SkyRLGymConfig(), client, tokenizer)
        # Without its progress bar, whose thread tqdm keeps for the whole process.
        await cut_off(loop.generate(batch([Task(HELD, seed) for seed in range(EPISODES)]), disable_tqdm=True), silent)

    with all_closed():
        run(abandon())
        gc.collect()
        wait_for(lambda: not any(thread.name.startswith("skyrl-gym-env") for thread in threading.enumerate()))


def test_a_thousand_environments_that_are_dropped_leave_nothing() -> None:
    skyrl.register()
    with all_closed():
        for row in skyrl.task_rows(Task(HELD, seed) for seed in range(EPISODES)):
            env = skyrl_gym.make("palestra", env_config={}, extras={"max_turns": 20})
            env.init(row["prompt"])
            assert env.step("on")["reward"] == 1.0
        del env


def test_what_is_not_a_task_and_what_skyrl_would_spoil_is_refused(tokenizer: Any) -> None:
    skyrl.register()
    env = skyrl_gym.make("palestra", env_config={}, extras={})
    with pytest.raises(UsageError, match="task_rows"):
        env.init([{"role": "user", "content": "What is 2 + 2?"}])
    with pytest.raises(UsageError, match="zero_reward_on_non_stop"):
        skyrl_generator.generator(config(zero_reward_on_non_stop=True), Client(tokenizer), tokenizer)
