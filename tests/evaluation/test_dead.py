"""An evaluation that cannot succeed must not look like success: causes, exit code, early stop, and a second try."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from time import monotonic

import pytest
from aiohttp import web
from tests.inference.servers.servers import serving
from tests.policies.chat_server import ChatServer
from typer.testing import CliRunner

from palestra import Env, Step, Task
from palestra.cli.app import app
from palestra.core import Conversation
from palestra.errors import InfrastructureError, PolicyError
from palestra.evaluation import evaluate, evaluate_async, read_report, report_markdown, report_on
from palestra.evaluation.run import FIRST_EPISODES, FIRST_OF_ENVIRONMENT
from palestra.policies.chat import ChatPolicy, Endpoint
from palestra.rollouts import read_trajectories
from palestra.rollouts.resuming import FAILED
from palestra.trajectory import Completion, Failure, Phase, StopReason, Trajectory

GUESS = "game:GuessTheNumber-v0-easy"


class Faulty:
    """Raises as long as ``broken``. Counts its calls."""

    name = "faulty"
    broken = True
    calls = 0

    async def act(self, conversation: Conversation) -> Completion:
        self.calls += 1
        if self.broken:
            raise RuntimeError(f"no such prompt at {id(conversation):#x}")
        return Completion("\\boxed{5}")


class Keyed(ChatServer):
    """Answers 401 without the right key."""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer good":
            return web.json_response({"error": "Incorrect API key provided"}, status=401)
        return await super().chat(request)


def palestra(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return done.exit_code, done.output


def test_the_causes_are_counted_and_shown() -> None:
    report = evaluate(GUESS, Faulty(), n=5)
    assert report.suite.scored == 0
    assert list(report.suite.causes.values()) == [5], "five failures of one kind differ only by an address in memory"
    assert "5 × policy, RuntimeError: no such prompt at …" in report_markdown(report)


def test_an_evaluation_whose_first_episodes_all_fail_stops(tmp_path: Path) -> None:
    policy = Faulty()
    report = evaluate(GUESS, policy, n=500, concurrency=4, out=tmp_path)
    assert FIRST_EPISODES <= policy.calls <= FIRST_EPISODES + 8
    assert report.stopped == f"the first {FIRST_EPISODES} episodes all failed"
    assert report.suite.failures == {"policy": FIRST_EPISODES, "not played": 500 - FIRST_EPISODES}
    assert read_report(tmp_path).stopped
    first = report_markdown(report).partition("\n")[0]
    assert first.startswith("# faulty: incomplete, 0 of 500 episodes asked for have a score; the first 8 episodes all failed")


def test_one_success_among_the_first_keeps_it_going() -> None:
    class Once(Faulty):
        async def act(self, conversation: Conversation) -> Completion:
            self.broken = self.calls != 2
            return await super().act(conversation)

    report = evaluate("math:Sums", Once(), n=30, concurrency=1)
    assert not report.stopped
    assert report.suite.issued == 30 == report.suite.scored + report.suite.failures["policy"]


def test_failed_episodes_are_played_again_by_the_same_command(tmp_path: Path) -> None:
    policy = Faulty()
    for _ in range(2):
        evaluate(GUESS, policy, n=6, group_size=2, concurrency=1, out=tmp_path)
    policy.broken = False
    report = evaluate(GUESS, policy, n=6, group_size=2, out=tmp_path)
    assert (report.suite.scored, report.suite.failures, report.suite.causes) == (12, {}, {})
    kept = Counter((episode.group, episode.member) for episode in read_trajectories(tmp_path / "trajectories.jsonl"))
    assert (set(kept.values()), len(kept)) == ({1}, 12)
    assert len(list(read_trajectories(tmp_path / FAILED))) == 2 * FIRST_EPISODES, "what failed stays on record"
    assert report.about["failed episodes that were played again"] == "8, recorded in failed.jsonl", "an episode counts once"
    calls = policy.calls
    assert evaluate(GUESS, policy, n=6, group_size=2, out=tmp_path).suite == report.suite
    assert policy.calls == calls, "a finished evaluation makes no calls"


async def test_a_wrong_key_is_shown_ends_with_1_and_is_mended_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Keyed()
    server.reply = {"content": "\\boxed{5}"}
    async with serving(server.app()) as url:
        command = ["eval", "good", "--base-url", f"{url}/v1", "-e", GUESS, "-n", "5", "-o", str(tmp_path / "run")]
        monkeypatch.setenv("OPENAI_API_KEY", "bad")
        code, shown = await asyncio.to_thread(palestra, *command)
        assert code == 1
        assert "5 × policy, PolicyError" in shown
        assert "401" in shown
        assert "Incorrect API key provided" in shown
        monkeypatch.setenv("OPENAI_API_KEY", "good")
        code, shown = await asyncio.to_thread(palestra, *command)
        assert code == 0
        assert "5 of 5 episodes" in shown


@pytest.mark.slow
def test_a_server_that_is_down_shows_within_seconds(tmp_path: Path) -> None:
    began = monotonic()
    command = ["eval", "m", "--base-url", "http://127.0.0.1:9/v1", "-e", GUESS, "-n", "3", "-o", str(tmp_path / "run")]
    code, shown = palestra(*command)
    assert code == 1
    assert "3 × infrastructure, InfrastructureError: http://127.0.0.1:9/v1: 3 calls failed" in shown
    assert monotonic() - began < 90, "it took 2 min 15 s once; on a busy machine it takes 5 s"


async def test_an_endpoint_that_is_busy_or_has_answered_is_given_all_its_attempts() -> None:
    server, talk = ChatServer({"500": 1.0}), Conversation(Task(GUESS, 0))
    async with serving(server.app()) as url:
        policy = ChatPolicy(Endpoint("stub", f"{url}/v1", attempts=5, longest_wait=0.01))
        for faults in ({"500": 1.0}, {}, {"500": 1.0}):
            server.faults = faults
            with pytest.raises(InfrastructureError, match="5 calls failed") if faults else contextlib.nullcontext():
                await policy.act(talk)
        await policy.close()


async def test_what_the_model_wrote_is_not_masked() -> None:
    server = ChatServer()
    server.reply = {"content": "the version is 2024-06-01"}
    async with serving(server.app()) as url:
        policy = ChatPolicy(Endpoint("stub", f"{url}/v1?api-version=2024-06-01"))
        assert (await policy.act(Conversation(Task(GUESS, 0)))).text == "the version is 2024-06-01"
        await policy.close()


async def test_retried_calls_are_in_the_report(tmp_path: Path) -> None:
    server = ChatServer({"429": 0.3, "500": 0.2})
    server.reply = {"content": "\\boxed{5}"}
    async with serving(server.app()) as url:
        policy = ChatPolicy(Endpoint("stub", f"{url}/v1", attempts=40, first_attempts=40, longest_wait=0.01))
        report = await evaluate_async(GUESS, policy, n=20, out=tmp_path)
        await policy.close()
    assert report.suite.retried_calls == {kind: server.kinds[kind] for kind in report.suite.retried_calls}
    assert set(report.suite.retried_calls) == {"429", "500"}
    assert f"{server.kinds['429']} × 429" in report_markdown(report)
    assert read_report(tmp_path) == report


def test_a_resumed_run_with_scores_does_not_stop_for_episodes_that_always_fail(tmp_path: Path) -> None:
    class Selective(Faulty):
        async def act(self, conversation: Conversation) -> Completion:
            self.broken = conversation.task.seed % 2 == 0
            return await super().act(conversation)

    first = evaluate("math:Sums", Selective(), n=60, concurrency=4, out=tmp_path)
    assert not first.stopped
    assert first.suite.failures["policy"] > FIRST_EPISODES
    second = evaluate("math:Sums", Selective(), n=60, concurrency=4, out=tmp_path)
    assert (second.stopped, second.suite.scored) == ("", first.suite.scored)


class Broken(Env):
    """Fails in its step, with another message in every task."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, object]]:
        super().reset(seed=seed, task=task)
        return "go", {}

    def step(self, action: str) -> Step:
        table: dict[str, float] = {}
        return Step("", table[f"key {self.task.seed}"], True, False, {})


class Sound(Broken):
    def step(self, action: str) -> Step:
        return Step("", 1.0, True, False, {})


class NoReset(Broken):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, object]]:
        raise RuntimeError("no board")


def test_the_report_of_a_run_that_failed_before_the_policy_acted_names_the_policy() -> None:
    report = evaluate(NoReset, "random", n=2)
    assert report_markdown(report).startswith("# random: incomplete, 0 of 2 episodes")


def test_an_environment_whose_first_episodes_fail_for_one_cause_is_not_played_on(tmp_path: Path) -> None:
    tasks = [Task(f"{__name__}:Broken", seed) for seed in range(300)]
    report = evaluate(tasks, lambda text: "a", concurrency=4, out=tmp_path)
    played = report.suite.failures["env"]
    assert FIRST_OF_ENVIRONMENT <= played <= FIRST_OF_ENVIRONMENT + 8
    assert report.suite.failures == {"env": played, "not played": 300 - played}
    ((cause, count),) = report.suite.causes.items()
    assert count == played, "messages that differ only in details are one cause"
    assert "evaluation/test_dead.py:" in cause
    assert "in step" in cause
    first, *rest = report_markdown(report).splitlines()
    assert "the first 20 episodes of tests.evaluation.test_dead:Broken all failed for one cause: env, KeyError" in first
    assert any("To play what is missing, call evaluate again with out=" in line for line in rest)


def test_other_environments_are_played_on() -> None:
    tasks = [Task(f"{__name__}:{kind}", seed) for seed in range(60) for kind in ("Broken", "Sound")]
    report = evaluate(tasks, lambda text: "a", concurrency=4)
    broken, sound = report.envs
    assert sound.scored == sound.issued == 60
    assert broken.failures["env"] < 40
    assert broken.failures["env"] + broken.failures["not played"] == 60


def test_two_causes_do_not_stop_an_environment() -> None:
    class TwoWays(Broken):
        def step(self, action: str) -> Step:
            if self.task.seed % 2:
                raise RuntimeError("odd")
            return super().step(action)

    report = evaluate(TwoWays, lambda text: "a", n=50)
    assert report.suite.failures == {"env": 50}
    assert len(report.suite.causes) == 2


def test_errors_of_an_api_that_differ_in_their_status_are_two_causes() -> None:
    class Api:
        name = "api"

        async def act(self, conversation: Conversation) -> Completion:
            raise PolicyError(f"refused: {401 + conversation.task.seed % 2 * 3}")

    report = evaluate([Task(GUESS, seed) for seed in range(6)], Api())
    assert len(report.suite.causes) == 1, "one line of code raises both"
    failures = [Failure.of(PolicyError(f"refused: {status}"), Phase.ACT) for status in (401, 404)]
    refused = [Trajectory(Task(GUESS), StopReason.ERROR, failures=(failure,)) for failure in failures]
    assert len(report_on(refused).suite.causes) == 2


def test_replies_without_a_readable_answer_are_counted() -> None:
    replies = iter(["nothing", "Answer: 42"] * 50)
    report = evaluate("math:Sums", lambda text: next(replies), n=10)
    assert (report.suite.replies, report.suite.unreadable) == (10, 5)
    assert "5 of 10 replies had no answer that the environment could read" in report_markdown(report)
    readable = evaluate("math:Sums", lambda text: "Answer: 42", n=10)
    assert "could read" not in report_markdown(readable)
