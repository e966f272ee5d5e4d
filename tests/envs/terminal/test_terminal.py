"""The terminal worlds: actions, every family by its oracle, and graders that cannot be tricked."""

import pickle
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.envs.terminal.hacks import ANY, ONE

from palestra import Completion, Conversation
from palestra.calls import format_call
from palestra.encoding import encode_json
from palestra.envs.terminal.actions import Command, read_action
from palestra.envs.terminal.env import Terminal
from palestra.envs.terminal.families import FAMILIES
from palestra.envs.terminal.grading import Prints, expanded
from palestra.envs.terminal.ids import register_terminal
from palestra.envs.terminal.scene import LEVELS
from palestra.envs.terminal.turns import normalized
from palestra.errors import UsageError
from palestra.interchange.atif import read_atif, write_atif
from palestra.registry import list_envs
from palestra.rollout import collect
from palestra.sandbox.shell import Shell
from palestra.seeding import derive
from palestra.trajectory import Task, ToolCall, text_of
from palestra.viewer.pictures import pictures_of

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
    register_terminal()
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


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("family", HERE)
async def test_the_oracle_solves_a_hard_task(family: str) -> None:
    env = Terminal(family, "hard")
    try:
        assert await score(env, family, "hard", 0) == 1.0
    finally:
        await env.close()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("family", FAMILIES)
async def test_the_oracle_solves_two_hundred_tasks(family: str) -> None:
    for level in LEVELS:
        env = Terminal(family, level)
        try:
            assert [seed for seed in range(67) if await score(env, family, level, seed) != 1.0] == []
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
def test_an_episode_has_a_screen_for_every_turn_and_survives_atif(tmp_path: Path) -> None:
    (episode,) = collect("terminal:text-v0-easy", "oracle", n=1, progress=False)
    screens = pictures_of(encode_json(episode))
    assert screens is not None
    assert len(screens) == len(episode.turns) + 1
    (screen,) = screens[-1]
    assert isinstance(screen, dict)
    assert screen["style"]["white-space"] == "pre-wrap", "lines stay lines"
    assert "$ cd\ngrep -cw" in screen["children"][0], "a person sees the command and its output"
    assert write_atif([episode], tmp_path / "atif") == 1
    (back,) = read_atif(tmp_path / "atif")
    assert [(turn.observation, turn.action) for turn in back.turns] == [
        (turn.observation, turn.action) for turn in episode.turns
    ]
    assert (back.task, back.reward, back.success, back.stop) == (episode.task, episode.reward, True, episode.stop)


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


@pytest.mark.slow
async def test_a_fork_that_fails_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    env = Terminal("text", "easy")
    twins: list[Shell] = []

    async def forked(shell: Shell) -> Shell:
        twins.append(await fork(shell))
        return twins[-1]

    def full() -> None:
        raise OSError("no more boxes")

    fork = Shell.fork
    try:
        await env.reset(seed=0)
        monkeypatch.setattr(Shell, "fork", forked)
        monkeypatch.setattr("palestra.envs.terminal.env.shared_shells", full)
        with pytest.raises(OSError, match="no more boxes"):
            await env.fork()
        assert [shell.alive for shell in twins] == [False]
    finally:
        await env.close()


LOOKS = (
    "ls -lA; id",
    "date; sleep 0.1 &",
    "time true; wait",
    "find . -type f ! -name index | sort | xargs cksum",
    "env | sort; ulimit -a",
)


class LooksAround:
    name = "looks around"

    async def act(self, conversation: Conversation) -> Completion:
        return Completion(f"```bash\n{(*LOOKS, 'submit')[conversation.turn]}\n```")


def observations(families: list[str], concurrency: int) -> list[tuple[list[str], float | None]]:
    """What the agent sees in two tasks per family, after normalization, and the rewards."""
    ids = [f"terminal:{family}-v0-medium" for family in families]
    played = collect(ids, LooksAround(), n=2, concurrency=concurrency, progress=False)
    return [([normalized(text_of(turn.observation)) for turn in one.turns], one.reward) for one in played]


@pytest.mark.slow
def test_observations_do_not_depend_on_the_number_of_workers() -> None:
    alone = observations(["logs", "golf"], 1)
    assert observations(["logs", "golf"], 8) == alone
    assert [len(seen) for seen, _ in alone] == [len(LOOKS) + 1] * 4


def test_times_and_process_ids_are_normalized() -> None:
    text = "-rw-r--r-- 1 agent agent 6 Nov 16 12:54 a\n[1] 4711\nreal 0m0.123s\n2026-11-16 12:54:01 x"
    assert normalized(text) == "-rw-r--r-- 1 agent agent 6 TIME a\n[1] PID\nreal TIME\nTIME x"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("*/20", {0, 20, 40}),
        ("5", {5}),
        ("1-3,7", {1, 2, 3, 7}),
        ("50-59/5", {50, 55}),
        ("50/5", None),
        ("9-5", None),
        ("x", None),
        ("61", None),
        ("*/0", None),
    ],
)
def test_fields_of_a_crontab(field: str, values: set[int] | None) -> None:
    assert expanded(field, 0, 59) == values


def test_a_check_can_be_sent_to_another_process() -> None:
    check = Prints("true", "", "text", ())
    assert pickle.loads(pickle.dumps(check)) == check  # noqa: S301  (our own bytes)
