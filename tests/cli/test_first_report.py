"""The path of somebody new: install, evaluate a model behind an API, look. Three commands, five minutes at most."""

import asyncio
import os
import subprocess
import sys
import venv
from pathlib import Path
from time import monotonic

import pytest

from tests.inference.servers.servers import serving
from tests.policies.chat_server import ChatServer

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 300.0


def run(*command: str | Path, cwd: Path) -> str:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True, timeout=MOST_SECONDS, env=own)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_from_pip_install_to_a_report_with_a_plot(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    wheel = next(tmp_path.glob("palestra-*.whl"))
    venv.create(tmp_path / "venv", with_pip=True)
    bin = tmp_path / "venv" / "bin"
    server = ChatServer()
    server.reply = {"content": "\\boxed{5}"}
    async with serving(server.app()) as url:
        began = monotonic()
        await asyncio.to_thread(run, bin / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
        evaluate = ["eval", "my-model", "--base-url", f"{url}/v1", "--envs", "game:*-easy", "-n", "20", "--max-turns", "10"]
        told = await asyncio.to_thread(run, bin / "palestra", *evaluate, cwd=tmp_path)
        view = ["view", "runs/my-model,game-all-easy", "--export", "page.html"]
        await asyncio.to_thread(run, bin / "palestra", *view, cwd=tmp_path)
        seconds = monotonic() - began
    assert "Score" in told
    assert "<svg" in (tmp_path / "runs" / "my-model,game-all-easy" / "report.html").read_text()
    assert (tmp_path / "page.html").stat().st_size > 100_000
    assert seconds <= MOST_SECONDS
