"""The terminal worlds: actions, every family by its oracle, and graders that cannot be tricked."""

import shutil

import pytest

pytest.importorskip("pyseccomp")

from tests.worlds.terminal.hacks import ANY, ONE

from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.registry import list_envs
from palestra.trajectory import Task, ToolCall
from palestra.trajectory.calls import format_call
from palestra.worlds.terminal.actions import Command, read_action
from palestra.worlds.terminal.env import Terminal
from palestra.worlds.terminal.families import FAMILIES
from palestra.worlds.terminal.scene import LEVELS
from palestra.worlds.terminal.turns import normalized

PROGRAMS = {"git": "git", "build": "make"}
HERE = [name for name in FAMILIES if name not in PROGRAMS or shutil.which(PROGRAMS[name])]


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ("I look.\n```bash\nls -A\n```", Command("ls -A")),
        ("```\ncat <<E\n a\nE\n```", Command("cat <<E\n a\nE")),
        ("```bash\nls\n```\nor\n```sh\npwd\n```", Command("pwd")),
        ("```bash\nsubmit\n```", Command(submit=True)),
        ("```\n^C\n```", Command(interrupt=True)),
        (format_call(ToolCall("bash", {"command": "id"})), Command("id")),
        (format_call(ToolCall("submit", {})), Command(submit=True)),
    ],
)
def test_actions(action: str, command: Command) -> None:
    assert read_action(action) == command


@pytest.mark.parametrize(
    "action", ["ls", "```python\n1\n```", "", format_call(ToolCall("sh", {})), "<tool_call>{", "x" * 100_001]
)
def test_what_is_not_a_command_is_answered(action: str) -> None:
    assert read_action(action).problem


def test_every_family_has_an_id_for_every_level() -> None:
    ids = {known.id for known in list_envs("terminal:*")}
    assert ids >= {f"terminal:{family}-v0-{level}" for family in FAMILIES for level in LEVELS}
    assert len(FAMILIES) >= 12
    with pytest.raises(UsageError, match="no terminal family"):
        Terminal("none")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_always_draws_the_same_task_and_seeds_differ(family: str) -> None:
    for level in range(len(LEVELS)):
        first, again, other = (FAMILIES[family](derive(seed, "task"), level) for seed in (1, 1, 2))
        assert (first.goal, first.files, first.solution, first.setup) == (again.goal, again.files, again.solution, again.setup)
        assert (first.goal, first.files) != (other.goal, other.files)
        paths = [file.path for file in first.files]
        assert len(paths) == len(set(paths))


async def score(env: Terminal, family: str, level: str, seed: int) -> float:
    await env.reset(task=Task(f"terminal:{family}-v0-{level}", seed))
    while True:
        step = await env.step(await env.oracle())
        if step.terminated:
            return step.reward


@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "seeds"),
    [
        pytest.param(["hard"], 1, marks=pytest.mark.gate),
        pytest.param([*LEVELS], 67, marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
)
@pytest.mark.parametrize("family", HERE)
async def test_the_oracle_solves_the_tasks_of_a_family(family: str, levels: list[str], seeds: int) -> None:
    for level in levels:
        env = Terminal(family, level)
        try:
            assert [seed for seed in range(seeds) if await score(env, family, level, seed) != 1.0] == []
        finally:
            await env.close()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("family", FAMILIES)
async def test_no_hack_passes(family: str) -> None:
    passed = []
    for place, (name, command) in enumerate([*ANY.items(), *ONE.get(family, {}).items()]):
        level = LEVELS[place % 3]
        env = Terminal(family, level, command_seconds=5)
        try:
            await env.reset(task=Task(f"terminal:{family}-v0-{level}", place))
            step = await env.step(f"```bash\n{command}\n```")
            if not step.terminated:
                step = await env.step("```\nsubmit\n```")
            if step.reward:
                passed.append((name, level))
        finally:
            await env.close()
    assert passed == []


@pytest.mark.slow
async def test_a_running_command_takes_input_and_can_be_interrupted() -> None:
    env = Terminal("text", "easy", command_seconds=0.3)
    try:
        await env.reset(seed=0)
        waiting = await env.step("```bash\necho name?; read x; echo hello $x; sleep 60\n```")
        assert waiting.observation == "name?\n[still running after 0.3 s: write input for it, or ^C]"
        assert "hello Ada" in (await env.step("```\nAda\n```")).observation
        assert (await env.step("```\n^C\n```")).observation == "[exit code 130]"
        assert "hello Ada" in env.render()
        ended = await env.step("```bash\nexit\n```")
        assert (ended.terminated, ended.reward) == (True, 0.0)
    finally:
        await env.close()


def test_times_and_process_ids_are_normalized() -> None:
    text = "-rw-r--r-- 1 agent agent 6 Nov 16 12:54 a\n[1] 4711\nreal 0m0.123s\n2026-11-16 12:54:01 x"
    assert normalized(text) == "-rw-r--r-- 1 agent agent 6 TIME a\n[1] PID\nreal TIME\nTIME x"
