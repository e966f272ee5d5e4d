"""Write tasks of ``terminal:`` as Harbor folders, which grade as ``terminal:`` does and need no Palestra.

The tests are the checks of the task as JSON, and the files of Palestra that interpret them. The verifier is separate, and gets
the agent's home folder and, as every separate verifier, ``/logs/artifacts``, which the grader removes before it runs a program
of the agent. Two kinds of task need a shared verifier: Harbor stops the processes of the agent's environment before a separate
verifier starts, and changes file modes when it copies files to it. The check of such a task is therefore only as safe as every
shared verifier (``palestra harbor check --hacks``).
"""

import json
import shlex
from collections import defaultdict
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from palestra.errors import UsageError
from palestra.registry import make
from palestra.sandbox.layers import NewFile
from palestra.sandbox.shell import ENVIRONMENT
from palestra.trajectory import Task
from palestra.worlds.terminal.env import Terminal
from palestra.worlds.terminal.grading import Modes, Workers, to_data
from palestra.worlds.terminal.scene import HOME, Scene
from palestra.worlds.terminal.standalone import FIRST

__all__ = ["IMAGE", "export_task", "export_tasks"]

IMAGE = "python:3.11-bookworm"
"""Has what the families use: bash, coreutils, awk, git, gcc, make, procps, Python."""
_CARRIED = ("worlds/terminal/grading.py", "worlds/terminal/standalone.py", "worlds/terminal/confined.py", "sandbox/screen.py")
_STEP = "task"
_TOML = """schema_version = "1.4"
{artifacts}
[task]
name = "palestra/{name}"
description = "{id}, seed {seed}"

[metadata]
palestra_id = "{id}"
palestra_seed = {seed}

[environment]
network_mode = "no-network"
memory_mb = 1024
storage_mb = 512
workdir = "/{home}"

[agent]
timeout_sec = 1200.0

[verifier]
timeout_sec = 300.0
environment_mode = "{mode}"
{steps}"""
_INSTRUCTION = "{goal}\n\nYou work in /{home}, which is your home folder; paths are relative to it.\n"
_TEST = """#!/bin/bash
exec python3 -IBS -c 'import sys
sys.path.insert(0, "/tests")
from palestra.worlds.terminal.standalone import main
main("/tests")'
"""
_RECORD = f"""mkdir -p {FIRST.rpartition("/")[0]}
for d in /proc/[0-9]*; do
    s=$(sed 's/.*) //' $d/stat 2>/dev/null) && set -- $s && echo "${{d#/proc/}} ${{20}}"
done > {FIRST}
"""


def export_tasks(env_id: str, folder: Path, seeds: Sequence[int], image: str = IMAGE) -> list[Path]:
    """Write the tasks of ``env_id`` with these seeds below ``folder``, and return their folders.

    Raises:
        UsageError: The environment is not one of ``terminal:``, or a task exists already.
    """
    with make(env_id) as env:
        inner = getattr(env, "unwrapped", env)
        if not isinstance(inner, Terminal):
            raise UsageError(f'"{env_id}" is not a terminal task: name an id such as terminal:text-v0-easy')
        return [export_task(inner, Task(env_id, seed), folder, image) for seed in seeds]


def export_task(env: Terminal, task: Task, folder: Path, image: str = IMAGE) -> Path:
    """Write one task below ``folder``, and return its folder."""
    scene = env.scene_of(task)
    name = f"{task.env.removeprefix('terminal:')}-{task.seed:04}"
    target = folder / name
    if target.exists():
        raise UsageError(f"{target} exists already: name another folder, or remove it")
    living = any(isinstance(check, Workers) for check in scene.checks)
    shared = living or any(isinstance(check, Modes) for check in scene.checks)
    _write(target / "task.toml", _toml(name, task, shared, living))
    step = target / "steps" / _STEP if living else target
    _write(step / "instruction.md", _INSTRUCTION.format(goal=scene.goal, home=HOME))
    solution = "".join(f"cd /{HOME}\n{command}\n" for command in scene.solution)
    _write(step / "solution/solve.sh", f"#!/bin/bash\n{solution}")
    _write_environment(target / "environment", scene, "" if living else scene.setup, image)
    if living:
        _write(step / "workdir/setup.sh", f'rm -f -- "$0"\ncd /{HOME}\n{scene.setup}\n{_RECORD}')
    _write_tests(step / "tests", scene, "" if shared else image)
    return target


def _toml(name: str, task: Task, shared: bool, living: bool) -> str:
    return _TOML.format(
        artifacts="" if shared else f'artifacts = ["/{HOME}"]\n',
        name=name,
        id=task.env,
        seed=task.seed,
        home=HOME,
        mode="shared" if shared else "separate",
        steps=f'\n[[steps]]\nname = "{_STEP}"\n' if living else "",
    )


def _write_environment(folder: Path, scene: Scene, setup: str, image: str) -> None:
    kept = {name: value for name, value in ENVIRONMENT.items() if name not in ("PATH", "SHELL", "TERM")}
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in {**kept, "HOME": f"/{HOME}"}.items())
    lines = [f"FROM {image}", f"ENV {variables}", f"WORKDIR /{HOME}", "COPY home/ ./"]
    lines += [f"RUN chmod {mode:o} {' '.join(map(shlex.quote, paths))}" for mode, paths in _modes(scene.files).items()]
    if setup:
        lines.append(f"RUN {setup}")
    _write(folder / "Dockerfile", "\n".join(lines) + "\n")
    for file in scene.files:
        _write(folder / "home" / file.path.removeprefix(f"{HOME}/"), file.content, 0o755 if file.mode & 0o100 else 0o644)


def _modes(changed: Sequence[NewFile]) -> dict[int, list[str]]:
    """Return modes → paths of the files that the Dockerfile must change: folders lose modes on their way, such as in git."""
    modes: dict[int, list[str]] = defaultdict(list)
    for file in changed:
        if file.mode not in (0o644, 0o755):
            modes[file.mode].append(file.path.removeprefix(f"{HOME}/"))
    return modes


def _write_tests(folder: Path, scene: Scene, image: str) -> None:
    data = {"checks": to_data(scene.checks), "variables": dict(ENVIRONMENT)}
    _write(folder / "check.json", json.dumps(data, indent=1) + "\n")
    _write(folder / "test.sh", _TEST)
    for path in _CARRIED:
        _write(folder / "palestra" / path, files("palestra").joinpath(path).read_bytes())
    if image:
        _write(folder / "Dockerfile", f"FROM {image}\nCOPY . /tests/\nWORKDIR /{HOME}\n")


def _write(path: Path, content: str | bytes, mode: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode or (0o755 if path.suffix == ".sh" else 0o644))
