import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.evaluation.present import partial_score

import palestra
from palestra import Completion, Conversation, Env, Step, Task
from palestra.errors import EnvError, UsageError
from palestra.evaluation import Regrading, compare, evaluate, read_episodes, read_report, regrade, task_scores
from palestra.foundation.encoding import floats, ints
from palestra.registry import unregister
from palestra.rollouts import read_trajectories
from palestra.trajectory import Tokens

ENV = "regrade:Ladder-v0"


class Ladder(Env):
    """Climb three rungs. The class's own dials stand for a later version of the environment."""

    rungs: ClassVar[int] = 3
    worth: ClassVar[float] = 1.0
    words: ClassVar[str] = "rung"
    last_words: ClassVar[str] = "the top"

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.at = 0
        return f"{self.words} 0", {}

    def step(self, action: str) -> Step:
        if action == "break":
            raise EnvError("broken")
        self.at += 1
        done = self.at == self.rungs
        reward = self.worth if done and action == "climb" else 0.0
        return Step(self.last_words if done else f"{self.words} {self.at}", reward, done, False, {"success": reward > 0})


class Climber:
    """Samples ten tokens a turn; on every third task it breaks the ladder at the second rung."""

    name = "climber"

    async def act(self, conversation: Conversation) -> Completion:
        turn = conversation.turn
        prompt, ids = ints(np.arange(10 + 20 * turn)), ints(np.arange(10 + 20 * turn, 20 + 20 * turn))
        broken = conversation.task.seed % 3 == 0 and turn == 1
        return Completion("break" if broken else "climb", tokens=Tokens(prompt, ids, floats([-1.0] * 10)))


@pytest.fixture(autouse=True)
def ladder() -> Any:
    palestra.register(ENV, Ladder)
    yield
    unregister(ENV)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    evaluate([Task(ENV, seed) for seed in range(1, 6)], Climber(), group_size=2, out=tmp_path / "run")
    return tmp_path / "run"


def reasons(regrading: Regrading) -> set[str]:
    return {entry.why for entry in regrading.not_regraded}


def test_the_same_environment_gives_the_same_episodes(run: Path) -> None:
    regrading = regrade(run)
    assert (regrading.episodes, regrading.regraded, regrading.changed) == (10, 8, ())
    assert reasons(regrading) == {"it failed when it was played (EnvError)"}
    assert {(e.group, e.member) for e in regrading.not_regraded} == {(2, 0), (2, 1)}
    files = (folder / "trajectories.jsonl" for folder in (run, Path(regrading.folder)))
    first, again = (
        {
            (trajectory.group, trajectory.member): (trajectory.digest(), trajectory.seconds)
            for trajectory in read_trajectories(file)
        }
        for file in files
    )
    assert first == again
    assert regrading.environments[ENV].then == regrading.environments[ENV].now


def test_a_new_grader_gives_new_scores_beside_the_old(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (run / "report.json").read_bytes()
    monkeypatch.setattr(Ladder, "worth", 0.5)
    monkeypatch.setattr(Ladder, "last_words", "said after the last action")
    regrading = regrade(run)
    assert {(e.before, e.after) for e in regrading.changed} == {(1.0, 0.5)}
    report = read_report(regrading.folder)
    assert (partial_score(report.suite).mean, partial_score(report.suite).missing) == (0.5, 2)
    assert report.suite.failures == {"env": 2}
    assert report.about["scored again"].startswith("8 of 10 episodes of run")
    assert (run / "report.json").read_bytes() == before
    difference = compare(task_scores(read_episodes(regrading.folder)), task_scores(read_episodes(run))).difference
    assert difference.mean == -0.5


def test_who_would_have_seen_something_else_has_no_new_score(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ladder, "words", "step")
    regrading = regrade(run)
    assert regrading.regraded == 0
    assert "at turn 1 the observation differs from the recorded one" in reasons(regrading)
    report = read_report(regrading.folder)
    assert report.suite.failures == {"env": 2, "not regraded": 8}
    assert report.suite.score is None


def test_nobody_knows_what_the_policy_would_have_done_next(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ladder, "rungs", 4)
    monkeypatch.setattr(Ladder, "last_words", "rung 3")
    # The third action now leads to "rung 3" and not to the top: nobody acted on that, but the game goes on.
    assert "the environment does not end after the 3 recorded actions" in reasons(regrade(run))


def test_an_episode_that_ends_sooner_keeps_the_tokens_of_its_turns(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ladder, "rungs", 2)
    regrading = regrade(run, out=run.parent / "elsewhere")
    assert regrading.regraded == 8
    trajectory = next(
        trajectory
        for trajectory in read_trajectories(run.parent / "elsewhere" / "trajectories.jsonl")
        if not trajectory.stop.failed
    )
    assert len(trajectory.turns) == 2
    assert [span.turn for segment in trajectory.segments for span in segment.spans] == [0, 1]
    assert sum(len(segment.logprobs) for segment in trajectory.segments) == 20


def test_a_turn_limit_is_kept(tmp_path: Path) -> None:
    evaluate([Task(ENV, 1)], lambda text: "climb", max_turns=2, out=tmp_path)
    assert regrade(tmp_path).regraded == 1


def test_two_players_of_one_game(tmp_path: Path) -> None:
    evaluate("game:TicTacToe-v0", "random", n=4, out=tmp_path / "own")
    assert regrade(tmp_path / "own").changed == ()
    evaluate(Duel, "random", n=3, out=tmp_path / "duel")
    regrading = regrade(tmp_path / "duel", envs=[f"{__name__}:Duel"])
    assert (regrading.episodes, regrading.regraded, regrading.changed) == (6, 6, ())


class Duel(Env):
    """Two players name numbers; the larger wins."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.first = 0
        return "a number", {"player": "white"}

    def step(self, action: str) -> Step:
        if not self.first:
            self.first = int(action)
            return Step("a number", 0.0, False, False, {"player": "black"})
        won = float(int(action) > self.first)
        return Step("", won, True, False, {"rewards": {"white": 1 - won, "black": won}})

    def sample_random_action(self) -> str:
        return str(self.action_rng.integers(1, 100))


def test_the_record_says_which_source_played(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["environments"][ENV] = "another source"
    (run / "config.json").write_text(json.dumps(config))
    regrading = regrade(run)
    assert regrading.environments[ENV].then == "another source"
    told = read_report(regrading.folder).about["environments whose source changed"]
    assert told == f"{ENV} (another source then, {regrading.environments[ENV].now} now)"


def test_mistakes_are_told(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of an evaluation"):
        regrade(tmp_path)
    with pytest.raises(UsageError, match="holds a run of another kind"):
        regrade(run, out=run)


def rename(run: Path, name: str) -> None:
    for file in ("trajectories.jsonl", "config.json", "report.json"):
        (run / file).write_text((run / file).read_text().replace(ENV, name))


@pytest.mark.parametrize(
    "name", ["remote:http://127.0.0.1:9#game:X", "openenv:http://127.0.0.1:9", "canary:Env", f"{__name__}:Ladder"]
)
def test_a_name_in_a_folder_is_not_obeyed(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def obeyed(*_: object, **__: object) -> None:
        raise AssertionError(f"{name} was obeyed")

    monkeypatch.setattr("palestra.registry.resolve", obeyed)
    rename(run, name)
    regrading = regrade(run)
    assert regrading.regraded == 0
    assert f'"{name}" is not a registered id: if you trust it, name it (--envs)' in reasons(regrading)
    assert regrading.environments[name].now == "unknown"


def test_what_the_user_names_is_played(run: Path) -> None:
    name = f"{__name__}:Ladder"
    rename(run, name)
    assert regrade(run, envs=[name]).regraded == 8
