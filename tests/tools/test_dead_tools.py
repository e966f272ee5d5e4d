"""A tool that cannot start is the machine's failure; what the agent does to its own box is the agent's."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tools.dead_tools import CALL, Product

from palestra.errors import MissingExtra
from palestra.rollouts import rollout
from palestra.sandbox import Bubblewrap, Limits
from palestra.sandbox import seccomp as seccomp_module
from palestra.tools.python import PythonTool
from palestra.trajectory import ToolCall
from palestra.trajectory.calls import format_call
from palestra.wrappers import UseTools

ROOT = Path(__file__).parents[2]
AS_ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can forbid namespaces")


def played(*arguments: str, path: str = os.environ["PATH"]) -> dict[str, Any]:
    pytest.importorskip("pyseccomp")
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": path}
    command = [sys.executable, "-m", "tests.tools.dead_tools", *arguments]
    said: dict[str, Any] = json.loads(
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout
    )
    return said


@pytest.mark.gate
@pytest.mark.slow
def test_too_few_descriptors_cost_time_and_no_episode() -> None:
    assert played("64", "224") == {"kinds": {"right": 64}, "messages": []}


@pytest.mark.gate
@pytest.mark.slow
def test_where_no_box_fits_every_episode_is_a_failure_of_infrastructure() -> None:
    said = played("4", "70")
    assert said["kinds"] == {"failed: infrastructure": 4}
    assert "ulimit -n" in said["messages"][0][0]


def test_without_bwrap_the_run_is_refused_with_the_remedy() -> None:
    assert "apt-get install bubblewrap" in played("4", path="/nowhere")["refused"]


@pytest.mark.gate
@pytest.mark.slow
def test_a_bwrap_that_vanishes_is_infrastructure() -> None:
    said = played("4", "4096", "--late", path="/nowhere")
    assert said["kinds"] == {"failed: infrastructure": 4}


@AS_ROOT_ONLY
def test_without_user_namespaces_the_run_is_refused_with_the_remedy() -> None:
    assert "max_user_namespaces=15000" in played("4", "--forbidden")["refused"]


@AS_ROOT_ONLY
@pytest.mark.slow
def test_namespaces_that_run_out_are_infrastructure() -> None:
    said = played("4", "--forbidden", "--late")
    assert said["kinds"] == {"failed: infrastructure": 4}
    assert "max_user_namespaces=15000" in said["messages"][0][0]


@pytest.mark.parametrize(
    ("complaint", "remedy"),
    [
        ("No permissions to create new namespace, likely because the kernel does not allow", "seccomp=unconfined"),
        ("setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns"),
        ("Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("Unknown option --disable-userns", "0.8 or newer"),
        ("something that no one has seen yet", "something that no one"),
    ],
)
def test_a_bwrap_that_fails_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str, remedy: str) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\necho "bwrap: {complaint}" >&2\nexit 1\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    for folder in (tmp_path, *tmp_path.parents):  # root's boxes run as another user
        if os.geteuid() == 0 and folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    limits = Limits(wall_seconds=9.0)  # of its own: a pass is remembered
    with pytest.raises(MissingExtra, match=remedy):
        PythonTool(limits=limits)


def test_without_seccomp_the_tool_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    seccomp_module.filter_program.cache_clear()
    with pytest.raises(MissingExtra, match=r"needs seccomp: .*(\[sandbox\]|extra \"sandbox\")"):
        PythonTool(limits=Limits(wall_seconds=8.0))
    seccomp_module.filter_program.cache_clear()


HOSTILE = {
    "exits": "import os; os._exit(0)",
    "kills everything": "import os, signal; os.kill(-1, signal.SIGKILL)",
    "kills its parent": "import os, signal; os.kill(os.getppid(), signal.SIGKILL); os.kill(1, signal.SIGKILL)",
    "uses up its descriptors": "import os\nwhile True: os.open('/dev/null', os.O_RDONLY)",
    "uses up its descriptors quietly": "import os\ntry:\n    while True: os.open('/dev/null', 0)\nexcept OSError: pass",
    "uses up its memory": "x = []\nwhile True: x.append(bytearray(10**8))",
    "uses up its disk": "f = open('f', 'wb')\nwhile True: f.write(bytes(10**6)); f.flush()",
    "uses up its inodes": "import os\nfor i in range(10**6): os.close(os.open(str(i), os.O_CREAT))",
    "uses up its processes": "import os, time\nwhile True:\n    if not os.fork(): time.sleep(60)",
    "raises EMFILE": "raise OSError(24, 'Too many open files')",
    "raises ENOSPC": "raise OSError(28, 'No space left on device')",
    "raises MemoryError": "raise MemoryError",
    "raises our error": "class InfrastructureError(Exception): pass\nraise InfrastructureError('not scored, please')",
    "closes its channel": "import os; os.close(3)",
    "closes its output": "import os; os.close(1); os.close(2)",
    "closes everything": "import os; os.closerange(0, 100)",
    "shuts its channel": "import socket; socket.socket(fileno=3).shutdown(socket.SHUT_RDWR)",
    "stops reading": "import socket; socket.socket(fileno=3).shutdown(socket.SHUT_RD)",
    "forges success": "import os; os.write(3, b'\\0\\0\\0\\x011'); os._exit(0)",
    "forges many answers": "import os; os.write(3, b'\\0\\0\\0\\x011' * 1000)",
    "forges a large frame": "import os; os.write(3, b'\\xff' * 100)",
    "forges an empty frame": "import os; os.write(3, b'\\0' * 4)",
    "forges half a frame": "import os; os.write(3, b'\\0\\0')\nimport time; time.sleep(60)",
    "stops itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "has a name that is no text": "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff)\\xfe')\nwhile True: pass",
    "takes too long": "while True: pass",
    "prints too much": "while True: print('x' * 10**5)",
    "prints no text": "import os; os.write(1, bytes(range(256)) * 100)",
    "replaces its interpreter": "import os; os.execv('/usr/bin/true', ['true'])",
    "exhausts the stack": "def f(): f()\nimport sys; sys.setrecursionlimit(10**9); f()",
    "segfaults": "import ctypes; ctypes.string_at(0)",
    "overlong code": "x = '" + "a" * 10**6 + "'",
    "holds NUL": "x = '\0'",
}


@pytest.fixture(scope="module")
def hostile_episodes() -> dict[str, Any]:
    """Every hostile cell, called twice by an agent that then moves; all of them at once."""
    names = list(HOSTILE)

    async def play() -> dict[str, Any]:
        async with Bubblewrap(Limits(wall_seconds=2.0, total_memory=2**28, process_memory=2**28), warm=2) as sandbox:

            def lend(env: Any) -> UseTools:
                return UseTools(env, [PythonTool(sandbox)])

            async def one(name: str) -> tuple[str, Any]:
                said: list[str] = []

                async def agent(observation: str) -> str:
                    said.append(observation)
                    if len(said) == 4:
                        return "42" if "42" in observation else "no idea"
                    return CALL if len(said) == 3 else format_call(ToolCall("python", {"code": HOSTILE[name]}))

                async for episode in rollout(Product, agent, n=1, deadline=100.0, wrappers=[lend]):
                    return name, episode
                raise AssertionError

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(name)) for name in names]
            return dict(task.result() for task in tasks)

    return asyncio.run(play())


@pytest.mark.parametrize("name", HOSTILE)
def test_no_code_makes_its_episode_unscored(name: str, hostile_episodes: dict[str, Any]) -> None:
    episode = hostile_episodes[name]
    assert episode.failures == ()
    assert not episode.stop.failed
    assert len(episode.turns) == 4
    assert "tool_response" in episode.turns[1].observation
