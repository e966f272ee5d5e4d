"""The snippets that need a model or a server."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.inference.servers.servers import serving
from tests.policies.chat_server import ChatServer

SNIPPETS = Path(__file__).parents[2] / "docs" / "snippets"
SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.torch
@pytest.mark.parametrize("snippet", sorted((SNIPPETS / "hf").glob("*.py")), ids=lambda path: path.name)
@pytest.mark.slow
def test_snippet_with_a_model_runs(snippet: Path, tmp_path: Path) -> None:
    surroundings = {**os.environ, "PALESTRA_HOME": str(tmp_path), "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, snippet], check=False, cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "sampled" in done.stdout
    if snippet.name == "own_questions.py":
        first, last = re.findall(r"\d\.\d\d in the", done.stdout)
        assert float(last[:4]) > float(first[:4]) + 0.2, "the page promises that the model learns"


@pytest.mark.parametrize("snippet", sorted((SNIPPETS / "served").glob("*.py")), ids=lambda path: path.name)
@pytest.mark.slow
async def test_snippet_with_a_server_runs(snippet: Path, tmp_path: Path) -> None:
    server = ChatServer()
    server.reply = {"content": "\\boxed{5}"}
    async with serving(server.app()) as url:
        surroundings = {**os.environ, "BASE_URL": f"{url}/v1", "PYTHONPATH": str(SOURCE)}
        pipes: Any = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        running = await asyncio.create_subprocess_exec(sys.executable, snippet, cwd=tmp_path, env=surroundings, **pipes)
        told, complained = await running.communicate()
    assert running.returncode == 0, complained.decode()
    assert b"calls=" in told
    assert not complained, complained.decode()
