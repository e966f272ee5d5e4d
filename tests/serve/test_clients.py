"""The clients on the page of the protocol, in plain Python and in TypeScript, play the episode that ``make`` plays."""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import palestra
from palestra.serve import EnvServer
from palestra.serve.tokens import new_token

CLIENTS = Path(__file__).parents[2] / "docs" / "snippets" / "clients"
GAME = "game:GuessTheNumber-v0-easy"


@pytest.mark.slow
async def test_the_client_in_plain_python() -> None:
    assert await output_of(sys.executable, "-I", str(CLIENTS / "play.py")) == await expected("None", str)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tsx") is None, reason="npm install -g tsx ws @msgpack/msgpack")
async def test_the_client_in_typescript(tmp_path: Path) -> None:
    tsx = shutil.which("tsx")
    assert tsx is not None
    # Node looks for packages beside the file: the global ones lie beside the command.
    (tmp_path / "node_modules").symlink_to(Path(tsx).parents[1] / "lib" / "node_modules")
    shutil.copy(CLIENTS / "play.ts", tmp_path)
    assert await output_of(tsx, str(tmp_path / "play.ts")) == await expected("null", "{:g}".format)


async def output_of(*command: str) -> str:
    token = new_token()
    async with EnvServer(GAME, token) as server:
        surroundings = {**os.environ, "URL": server.url, "TOKEN": token}
        running = await asyncio.create_subprocess_exec(
            *command, env=surroundings, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        printed, complaints = await running.communicate()
        assert running.returncode == 0, complaints.decode()
        assert not server.sessions, "the client has not closed its session"
    return printed.decode()


async def expected(no_reward: str, spelled: Callable[[float], str]) -> str:
    env = palestra.make_async(GAME)
    observation, _ = await env.reset(seed=3)
    lines = [f"{observation} {no_reward}"]
    for number in (5, 2, 1):
        step = await env.step(f"\\boxed{{{number}}}")
        lines.append(f"{step.observation} {spelled(step.reward)}")
        if step.terminated or step.truncated:
            break
    await env.close()
    assert step.terminated
    return "\n".join(lines) + "\n"
