"""Learnability: the figures against brute force and simulation, the verdicts, and the command, resumed."""

import asyncio
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.evaluation import Score, compare
from palestra.evaluation.learnability import EpisodeKey, Probe, ProbeAim, learnability, spread_share
from palestra.evaluation.probing import probe_async
from palestra.evaluation.report import EpisodeScore
from palestra.foundation.seeding import derive
from palestra.foundation.statistics import Estimate
from palestra.trajectory import Task

ORACLE = Estimate(1.0, 0.9, 1.0, 0.95, 64, 64)


def episode(group: int, member: int, reward: float | None) -> EpisodeScore:
    solved, stop = (None, "infra_failure") if reward is None else (reward >= 1.0, "terminated")
    name, task = "game:GuessTheNumber-v0-easy", f"{group}".encode()
    return EpisodeScore(name, task, group, member, "", "model", reward, solved, stop, "", "", 0, 3, 7, 0, 0.0, 0.1, ())


def judge(rewards: list[list[float | None]], actions: list[list[int]] | None = None, aim: ProbeAim | None = None) -> Probe:
    """The probe of groups with these rewards. Without actions, every episode takes others."""
    episodes = [episode(g, m, reward) for g, group in enumerate(rewards) for m, reward in enumerate(group)]
    taken: dict[EpisodeKey, bytes] = {
        (one.group, one.member, ""): f"{actions[one.group][one.member] if actions else (one.group, one.member)}".encode()
        for one in episodes
    }
    return learnability(episodes, taken, issued=len(episodes), aim=aim or ProbeAim(), ceiling=ORACLE)


def drawn(chance: float, tasks: int = 64, size: int = 8) -> list[list[float | None]]:
    rng = derive(0, "probe", str(chance))
    return [[float(rng.random() < chance) for _ in range(size)] for _ in range(tasks)]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=7), st.data())
def test_the_share_of_groups_with_a_spread_is_the_mean_over_all_choices(rewards: list[float], data: st.DataObject) -> None:
    size = data.draw(st.integers(2, len(rewards)))
    brute = np.mean([len(set(few)) > 1 for few in combinations(rewards, size)])
    assert spread_share(rewards, size) == pytest.approx(brute)


def test_a_set_that_is_sometimes_solved_can_teach() -> None:
    probe = judge(drawn(0.3))
    assert probe.verdict == "yes", probe.reasons
    assert probe.informative.low > 20.0
    assert probe.pass_at["1"].mean == pytest.approx(probe.score.mean)
    assert probe.spread_by_size["8"].mean == pytest.approx(1.0 - probe.flat.mean)
    assert [estimate.mean for estimate in probe.pass_at.values()] == sorted(
        estimate.mean for estimate in probe.pass_at.values()
    )
    assert sum(probe.solved_shares.values()) == probe.tasks == 64


@pytest.mark.parametrize(
    ("chance", "reason"), [(0.0, "fails or scores the same"), (1.0, "solves nearly every task"), (0.99, "below the ceiling")]
)
def test_a_set_that_is_never_or_nearly_always_solved_cannot(chance: float, reason: str) -> None:
    probe = judge(drawn(chance, tasks=160))
    assert probe.verdict == "no"
    assert reason in probe.reasons[0]
    if chance in (0.0, 1.0):
        assert (probe.flat.mean, probe.flat_solved) == (1.0, chance)


def test_too_few_tasks_or_too_many_failures_leave_it_unclear() -> None:
    few = judge(drawn(0.0, tasks=16))
    assert few.verdict == "unclear"
    assert "probe more tasks than 16" in few.reasons[0]
    broken = judge([[*group[:3], *[None] * 5] for group in drawn(0.4)])
    assert broken.verdict == "unclear"
    assert "38 % of the episodes have a score" in broken.reasons[0]
    with pytest.raises(UsageError, match="no task has two episodes with a score"):
        judge([[None, 1.0], [None, None]])


def test_rewards_that_do_not_follow_from_actions_teach_nothing_and_some_noise_is_only_reported() -> None:
    rng = derive(0, "noise")
    actions = rng.integers(0, 2, (64, 8)).tolist()
    random = judge(drawn(0.5), actions)
    assert random.noise > 0.8
    assert random.verdict == "no"
    assert "do not depend on the actions" in random.reasons[0]
    mostly = [[float(action if rng.random() < 0.8 else 1 - action) for action in group] for group in actions]
    noisy = judge([list(group) for group in mostly], actions)
    assert 0.3 < noisy.noise < 0.9
    assert noisy.verdict == "yes"
    exact = judge([[float(action) for action in group] for group in actions], actions)
    assert (exact.noise, exact.verdict) == (0.0, "yes")


@pytest.mark.slow
def test_the_smallest_gain_is_found_in_four_of_five_comparisons() -> None:
    tasks, chance = 100, 0.4
    gain = judge(drawn(chance)).visible[str(tasks)]
    rng = derive(0, "power")
    detected = 0
    for _ in range(200):
        before, after = (rng.random(tasks) < chance, rng.random(tasks) < chance + gain)
        pair = [[Score((), task, float(value)) for task, value in enumerate(outcomes)] for outcomes in (after, before)]
        detected += compare(*pair, resamples=400).p_value <= 0.05
    assert 0.7 <= detected / 200 <= 0.9


def test_the_command_prints_a_table_or_json_resumes_and_says_no_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["probe", "game:GuessTheNumber-v0-easy", "--policy", "random", "-n", "12", "-g", "4"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "| ceiling: score of the oracle | 1.000" in shown.stdout
    folder = Path("runs/probe,random,game-GuessTheNumber-v0-easy")
    written = msgspec.json.decode((folder / "probe.json").read_bytes(), type=Probe)
    again = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(again.stdout)["score"]["mean"] == written.score.mean
    Path("mute.py").write_text("def mute(text):\n    return 'nothing'\n")
    silent = CliRunner().invoke(app, ["probe", "game:GuessTheNumber-v0-easy", "-p", "mute:mute", "-g", "2"])
    assert silent.exit_code == 1, silent.output
    assert "cannot teach" in silent.stdout
    cold = CliRunner().invoke(app, [*command, "--temperature", "0"])
    assert "with the temperature of the training" in str(cold.exception)


def test_an_environment_without_an_oracle_has_no_ceiling(tmp_path: Path) -> None:
    probe = asyncio.run(probe_async(f"{__name__}:Plain", "random", out=tmp_path, n=4, group_size=3))
    assert probe.ceiling is None
    assert probe.floor is not None


class Plain(Env):
    """Pays for words of odd length; it has no oracle."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "say something", {}

    def step(self, action: str) -> Step:
        return Step("", float(len(action) % 2), True, False, {})

    def sample_random_action(self) -> str:
        return "a" * int(self.rng.integers(1, 5))


def test_without_an_oracle_rewards_above_one_have_no_ceiling() -> None:
    episodes = [episode(g, m, 10.0 * (reward or 0.0)) for g, row in enumerate(drawn(0.3)) for m, reward in enumerate(row)]
    actions: dict[EpisodeKey, bytes] = {
        (episode.group, episode.member, ""): f"{episode.group}.{episode.member}".encode() for episode in episodes
    }
    probe = learnability(episodes, actions, issued=len(episodes))
    assert probe.score.mean > 1.0
    assert probe.verdict == "yes"
    assert "the ceiling is unknown" in probe.reasons[1]
