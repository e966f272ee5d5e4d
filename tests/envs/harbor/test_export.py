"""Terminal tasks as Harbor folders: they read, grade as ``terminal:`` does, and the agent cannot forge the reward."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.envs.terminal.hacks import ANY, ONE, SOLVED

from palestra.core import Step
from palestra.envs.harbor.classes import classify, images_of
from palestra.envs.harbor.env import Harbor
from palestra.envs.harbor.export import export_task, export_tasks
from palestra.envs.harbor.reading import read_task
from palestra.envs.terminal.confined import filter_program
from palestra.envs.terminal.env import Terminal
from palestra.envs.terminal.families import FAMILIES
from palestra.envs.terminal.grading import from_data, to_data
from palestra.envs.terminal.scene import LEVELS
from palestra.envs.terminal.standalone import opened_logs, write_reward
from palestra.envs.terminal.turns import ShellEnv
from palestra.errors import UsageError
from palestra.trajectory import Task

SHARED = {"permissions", "processes"}
WRITTEN = "answer.txt report.csv clean.csv items.json crontab open.txt golf.sh package/functions.py project/*.txt hosts/*.conf"
MISTAKES = {
    "none": "true",
    "blanks at the end": "for f in $(ls -d WRITTEN 2>/dev/null); do printf '  \\n\\n' >> $f; done",
    "one more line": "for f in $(ls -d WRITTEN 2>/dev/null); do echo surplus >> $f; done",
    "the first line lost": "for f in $(ls -d WRITTEN 2>/dev/null); do sed -i 1d $f; done",
    "lines in another order": "for f in $(ls -d WRITTEN 2>/dev/null); do sort -r $f > t; cat t > $f; rm t; done",
    "links": "for f in $(ls -d WRITTEN 2>/dev/null); do mv $f t; cp t kept; ln -s ~/kept $f; done",
    "folders": "for f in $(ls -d WRITTEN 2>/dev/null); do rm $f; mkdir $f; done",
    "everything open": "chmod -R a+rwX ~",
    "something removed": "rm -f $(find ~ -type f | grep -v '/[.]git/' | sort | tail -1)",
    "not text": "for f in $(ls -d WRITTEN 2>/dev/null); do printf '\\377' >> $f; done",
    "a worker started again": "(exec -a worker-again sleep 999 > /dev/null 2>&1 &)",
    "another character": "for f in $(ls -d WRITTEN 2>/dev/null); do sed -i '1s/[0-9a-z]/_/' $f; done",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))


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


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    first = export_tasks("terminal:text-v0-easy", tmp_path, range(2))
    assert [place.name for place in first] == ["text-v0-easy-0000", "text-v0-easy-0001"]
    with pytest.raises(UsageError, match="exists already"):
        export_tasks("terminal:text-v0-easy", tmp_path, [1])
    with pytest.raises(UsageError, match="not a terminal task"):
        export_tasks("game:GuessTheNumber-v0-easy", tmp_path, [0])


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


def test_a_forged_reward_is_replaced_beside_a_folder_that_cannot_be_removed(deep: Path) -> None:
    logs = deep / "logs/verifier"
    logs.mkdir(parents=True)
    (logs / "reward.json").write_text('{"reward": 1}')
    deep_folder(logs, "reward.txt", 1500)
    write_reward(0.0, str(logs))
    assert (logs / "reward.json").read_text() == '{"reward": 0.0}'
    assert not (logs / "reward.txt").exists()


def test_the_names_beside_the_logs_may_be_taken(tmp_path: Path) -> None:
    above = tmp_path / "logs"
    for name in ("mine/verifier", "logs-of-the-agent/x"):
        (tmp_path / name).mkdir(parents=True)
    above.symlink_to(tmp_path / "mine")
    write_reward(0.0, str(above / "verifier"))
    assert not above.is_symlink()
    assert (above / "verifier/reward.json").read_text() == '{"reward": 0.0}'


def test_the_reward_reaches_the_first_folder_and_the_one_at_its_path(tmp_path: Path) -> None:
    logs = tmp_path / "logs/verifier"
    held = opened_logs(str(logs))
    logs.parent.rename(tmp_path / "moved")
    logs.mkdir(parents=True)
    for place in (logs, tmp_path / "moved/verifier"):
        (place / "reward.json").write_text('{"reward": 1}')
    write_reward(0.0, str(logs), held)
    assert (logs / "reward.json").read_text() == (tmp_path / "moved/verifier/reward.json").read_text() == '{"reward": 0.0}'
    shutil.rmtree(tmp_path / "moved")
    write_reward(None, str(logs), held)
    assert not (logs / "reward.json").exists()
    os.close(held)


GRADE = """import asyncio, sys
from palestra.envs.terminal.standalone import Disk, Found
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


async def played(env: ShellEnv, task: Task, solve: bool, command: str) -> Step:
    await env.reset(task=task)
    while solve and (action := await env.oracle()) != "```bash\nsubmit\n```":
        step = await env.step(action)
        assert not step.terminated, step.observation
    step = await env.step(f"```bash\ncd /home/agent\n{command.replace('WRITTEN', WRITTEN)}\n```")
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


SOME = [("text", "none"), ("golf", "one more line"), ("processes", "none"), ("permissions", "everything open")]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "mistake"), SOME)
async def test_the_same_reward_after_a_mistake(family: str, mistake: str, tmp_path: Path) -> None:
    ours, theirs = await both(tmp_path, family, "medium", 5, solve=True, command=MISTAKES[mistake])
    assert ours == theirs == float(mistake == "none")


@pytest.mark.slow
@pytest.mark.parametrize(("family", "hack"), [(family, hack) for family, hacks in SOLVED.items() for hack in hacks])
async def test_no_hack_of_a_solved_task_passes(family: str, hack: str, tmp_path: Path) -> None:
    assert await both(tmp_path, family, "easy", 5, solve=True, command=SOLVED[family][hack]) == (0.0, 0.0)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("family", FAMILIES)
async def test_the_same_rewards_after_every_mistake_and_hack(family: str, tmp_path: Path) -> None:
    rewards = {}
    cases = [(f"solved, then {name}", True, command) for name, command in MISTAKES.items()]
    cases += [(name, False, command) for name, command in {**MISTAKES, **ANY, **ONE.get(family, {})}.items()]
    for place, (name, solve, command) in enumerate(cases):
        rewards[name] = await both(tmp_path / str(place), family, LEVELS[place % 3], place, solve=solve, command=command)
    assert {name: pair for name, pair in rewards.items() if pair[0] != pair[1]} == {}
    assert rewards["solved, then none"] == (1.0, 1.0)
    assert rewards["nothing"] == (0.0, 0.0)
    assert len({pair[0] for pair in rewards.values()}) == 2


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
