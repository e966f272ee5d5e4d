"""Terminal tasks as Harbor folders: they read, grade as ``terminal:`` does, and the agent cannot forge the reward."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyseccomp")

from tests.worlds.terminal.hacks import SOLVED

from palestra.core import Step
from palestra.trajectory import Task
from palestra.worlds.harbor.classes import classify, images_of
from palestra.worlds.harbor.env import Harbor
from palestra.worlds.harbor.export import export_task
from palestra.worlds.harbor.reading import read_task
from palestra.worlds.terminal.confined import filter_program
from palestra.worlds.terminal.env import Terminal
from palestra.worlds.terminal.families import FAMILIES
from palestra.worlds.terminal.grading import from_data, to_data
from palestra.worlds.terminal.scene import LEVELS
from palestra.worlds.terminal.standalone import write_reward
from palestra.worlds.terminal.turns import ShellEnv

SHARED = {"permissions", "processes"}
OPEN = "chmod -R a+rwX ~"
MISTAKES = [("text", "true"), ("golf", "echo surplus >> golf.sh"), ("processes", "true"), ("permissions", OPEN)]


def exported(folder: Path, family: str, level: str, seed: int) -> Path:
    return export_task(Terminal(family, level), Task(f"terminal:{family}-v0-{level}", seed), folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_exports_a_sound_folder(family: str, tmp_path: Path) -> None:
    for level in LEVELS:
        task = read_task(exported(tmp_path, family, level, 3))
        assert task.warnings == ()
        assert classify(task, images_of(task)).reasons == ()
        assert [step.separate for step in task.steps] == [family not in SHARED]
        assert task.config.metadata["palestra_seed"] == 3
        checks = Terminal(family, level).scene_of(Task(f"terminal:{family}-v0-{level}", 3)).checks
        assert to_data(from_data(to_data(checks))) == to_data(checks)


def test_a_forged_reward_is_replaced(tmp_path: Path) -> None:
    logs = tmp_path / "logs/verifier"
    logs.mkdir(parents=True)
    (logs / "reward.json").mkdir()
    (logs / "reward.txt").write_text("1")
    logs.chmod(0)
    write_reward(0.0, str(logs))
    assert (logs / "reward.json").read_text() == '{"reward": 0.0}'
    assert not (logs / "reward.txt").exists()
    shutil.rmtree(logs)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/reward.txt").write_text("1")
    logs.symlink_to(tmp_path / "mine")
    write_reward(None, str(logs))
    assert list(logs.iterdir()) == [], "a grader that fails leaves no reward"
    with pytest.raises(OSError, match="cannot be run safely on riscv64"):
        filter_program("riscv64")


def deep_folder(place: Path, name: str, depth: int) -> None:
    """Make a folder that ``shutil.rmtree`` cannot remove: its path is too long for the kernel."""
    here = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder for deep ones; pytest could not remove them."""
    (tmp_path / "deep").mkdir()
    yield tmp_path / "deep"
    subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)


GRADE = """import asyncio, sys
from palestra.worlds.terminal.standalone import Disk, Found
disk = Disk({"PATH": "/usr/bin:/bin"}, sys.argv[1])
print(disk.data("kept"), asyncio.run(disk.fresh([Found("new", 0o644, b"")], "echo *")).split())
"""


@pytest.mark.parametrize(("name", "depth"), [("d", 1500), ("d" * 255, 20)], ids=["many levels", "long paths"])
def test_a_deep_home_is_read_and_made_fresh(name: str, depth: int, deep: Path) -> None:
    (deep / "kept").write_text("x")
    deep_folder(deep, name, depth)
    # In a process of its own: the grader kills all its descendants.
    run = subprocess.run([sys.executable, "-c", GRADE, deep], check=False, capture_output=True, text=True)
    assert run.stdout == "b'x' ['new']\n", run.stderr


async def played(env: ShellEnv[Any], task: Task, solve: bool, command: str) -> Step:
    await env.reset(task=task)
    while solve and (action := await env.oracle()) != "```bash\nsubmit\n```":
        step = await env.step(action)
        assert not step.terminated, step.observation
    step = await env.step(f"```bash\ncd /home/agent\n{command}\n```")
    return step if step.terminated else await env.step("```bash\nsubmit\n```")


async def both(folder: Path, family: str, level: str, seed: int, *, solve: bool, command: str) -> tuple[float, float]:
    """The rewards of ``terminal:`` and of the exported task."""
    task = Task(f"terminal:{family}-v0-{level}", seed)
    place = folder / f"{family}-v0-{level}-{seed:04}"
    rewards = []
    for env in (
        Terminal(family, level),
        Harbor(f"{place if place.exists() else exported(folder, family, level, seed)}?base=host"),
    ):
        try:
            rewards.append((await played(env, task, solve, command)).reward)
        finally:
            await env.close()
    return rewards[0], rewards[1]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "command"), MISTAKES)
async def test_the_same_reward_after_a_mistake(family: str, command: str, tmp_path: Path) -> None:
    ours, theirs = await both(tmp_path, family, "medium", 5, solve=True, command=command)
    assert ours == theirs == float(command == "true")


@pytest.mark.slow
@pytest.mark.parametrize(("family", "hack"), [(family, hack) for family, hacks in SOLVED.items() for hack in hacks])
async def test_no_hack_of_a_solved_task_passes(family: str, hack: str, tmp_path: Path) -> None:
    assert await both(tmp_path, family, "easy", 5, solve=True, command=SOLVED[family][hack]) == (0.0, 0.0)


FORGE = """import os, signal
try:
    os.makedirs('/logs/verifier', exist_ok=True)
    for name, text in (('txt', '1'), ('json', '{"reward": 1}')):
        open('/logs/verifier/reward.' + name, 'w').write(text)
    open('/proc/%d/mem' % os.getppid(), 'rb')
except OSError:
    pass
for pid in filter(str.isdecimal, os.listdir('/proc')):
    try:
        if int(pid) != os.getpid(): os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
os.chmod('/logs/verifier', 0)
"""
PEEK = "import os\nassert not os.path.exists('/tests')\n"
ATTACKS = {
    "forge the reward and kill the grader": FORGE,
    "leave a process that forges": f"import os\nif not os.fork():\n    os.setsid()\n    while True:\n        exec({FORGE!r})\n",
    "a deep folder at the place of the reward": """import os
os.chdir('/logs/verifier')
open('reward.json', 'w').write('{"reward": 1}')
for _ in range(1500): os.mkdir('reward.txt'); os.chdir('reward.txt')
""",
    "take the name for a moved folder": f"""import os
os.makedirs('/logs-of-the-agent/x')
os.rename('/logs', '/old')
os.makedirs('/mine/verifier')
os.symlink('/mine', '/logs')
{FORGE}""",
    "move the log folder": f"import os\nos.rename('/logs', '/old')\nos.mkdir('/mine')\nos.symlink('/mine', '/logs')\n{FORGE}",
}


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
async def test_programs_of_the_agent_cannot_forge_the_reward(attack: str, tmp_path: Path) -> None:
    folder = exported(tmp_path, "tests", "easy", 0)
    written = f"cat > package/functions.py <<'END'\n{ATTACKS[attack]}END"
    task = Task("terminal:tests-v0-easy", 0)
    env = Harbor(f"{folder}?base=host")
    try:
        assert (await played(env, task, False, written)).reward == 0.0
    finally:
        await env.close()


@pytest.mark.slow
async def test_programs_of_the_agent_do_not_see_the_expected_values(tmp_path: Path) -> None:
    folder = exported(tmp_path, "tests", "easy", 0)
    env = Harbor(f"{folder}?base=host")
    command = f"cat > t <<'END'\n{PEEK}END\ncat package/functions.py >> t; mv t package/functions.py"
    try:
        assert (await played(env, Task("terminal:tests-v0-easy", 0), True, command)).reward == 1.0, "there was nothing to see"
    finally:
        await env.close()
