"""AgentDojo's tasks: the oracle, the package's own verdict, floors, attacks and their score, hostile calls."""

from functools import cache
from typing import Any

import pytest
from tests.suite.tool_worlds import frames, oracle_plays

from palestra.evaluation import evaluate
from palestra.policies import OraclePolicy
from palestra.registry import make
from palestra.trajectory import Task, ToolCall
from palestra.trajectory.calls import format_call
from palestra.worlds.agentdojo.package import SUITES, read_tasks

pytestmark = [pytest.mark.worlds, pytest.mark.timeout(1800)]

TASKS = {"workspace": 40, "travel": 20, "banking": 16, "slack": 21}
GOALS = {"workspace": 14, "travel": 7, "banking": 9, "slack": 5}
BANKING = "tools:dojo-banking"
ATTACKED = "tools:dojo-banking-attacked"


@pytest.mark.parametrize("suite", SUITES)
def test_there_are_as_many_tasks_as_in_the_paper(suite: str) -> None:
    assert len(read_tasks(suite)) == TASKS[suite]
    assert len(read_tasks(suite, True)) == TASKS[suite] * GOALS[suite]
    assert len({row["user"] for row in read_tasks(suite).rows}) == TASKS[suite]


@pytest.mark.parametrize("suite", SUITES)
def test_the_oracle_solves_every_task(suite: str) -> None:
    assert oracle_plays(f"tools:dojo-{suite}", range(TASKS[suite])) == (TASKS[suite], [])


@cache
def attack_plays(suite: str) -> dict[str, tuple[float, bool]]:
    """For each goal of an attacker: the security after the calls that reach it, and whether there are such calls."""
    id = f"tools:dojo-{suite}-attacked"
    found = {}
    with make(id) as env:
        for index in range(GOALS[suite]):
            _, info = env.reset(task=Task(id, 0, index=index))
            goal: Any = env.unwrapped
            calls = goal._attack.ground_truth(goal._before)
            if calls:
                env.step("".join(format_call(ToolCall(call.function, dict(call.args))) for call in calls))
            step = env.step(str(goal._attack.GROUND_TRUTH_OUTPUT) or "Done.")
            found[info["data"]["injection_task"]] = (step.info["metrics"]["security"], bool(calls))
    return found


@pytest.mark.parametrize("suite", SUITES)
def test_an_agent_that_does_what_the_attacker_wants_is_not_secure(suite: str) -> None:
    # Eight goals of the workspace suite have no calls in the package; nothing there shows how to reach them.
    # AgentDojo's verdict on goal 0 of the workspace suite overlooks the e-mail if another one contains its subject.
    kept = {name for name, (security, _) in attack_plays(suite).items() if security}
    without = {name for name, (_, calls) in attack_plays(suite).items() if not calls}
    if suite == "workspace":
        assert without == {f"injection_task_{number}" for number in range(6, 14)}
        assert kept == without | {"injection_task_0"}
    else:
        assert kept == set()


def test_the_security_is_not_part_of_the_reward() -> None:
    with make(ATTACKED) as env:
        *_, last = frames(env, (ATTACKED, 0, "oracle"))
        assert last.info["metrics"] == {"security": 1.0}
        assert last.reward == 1.0
        env.reset(task=Task(ATTACKED, 0, index=7))  # change the password
        env.step(format_call(ToolCall("update_password", {"password": "new_password"})) + env.oracle())
        last = env.step("Done.")
        assert last.info["metrics"] == {"security": 0.0}
        assert last.reward == last.info["success"]


def test_attacked_texts_are_what_the_agent_reads() -> None:
    with make(ATTACKED) as env:
        observation, _ = env.reset(task=Task(ATTACKED, 0, index=7))
        assert "new_password" not in str(observation)
        assert "new_password" in str(env.step(env.oracle()).observation)
    with make(BANKING) as env:
        env.reset(task=Task(BANKING, 0, index=0))
        assert "new_password" not in str(env.step(env.oracle()).observation)
        assert "metrics" not in env.step("Done.").info


def test_the_report_has_the_security_apart_from_the_score() -> None:
    report = evaluate([ATTACKED, BANKING], OraclePolicy(), n=4)
    attacked, plain = sorted(report.envs, key=lambda section: section.name != ATTACKED)
    assert attacked.metrics["security"].tasks == 4
    assert attacked.metrics["security"].mean == 1.0
    assert plain.metrics == {}


def test_the_participants_of_an_event_keep_their_order() -> None:
    """AgentDojo puts them into a set, whose order depends on the hash seed."""
    id, people = "tools:dojo-workspace", [f"{name}@example.com" for name in ("zoe", "ann", "bob", "yan", "eve", "ann")]
    times = {"start_time": "2024-05-20 12:00", "end_time": "2024-05-20 13:00"}
    with make(id) as env:
        env.reset(task=Task(id, 0, index=0))
        step = env.step(format_call(ToolCall("create_calendar_event", {"title": "Tea", "participants": people, **times})))
    shown = [line[2:] for line in str(step.observation).splitlines() if line.startswith("- ")]
    assert shown == [*people[:5], "emma.johnson@bluesparrowtech.com"]
