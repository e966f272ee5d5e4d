"""Starts a real vLLM server for a test, through ``scripts/vllm_server.sh``. ``PALESTRA_VLLM_VENV`` names its venv."""

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "vllm_server.sh"
LONGEST_START = 900.0


def vllm_venv() -> Path:
    """The venv that holds vLLM."""
    named = os.environ.get("PALESTRA_VLLM_VENV")
    assert named, f"set PALESTRA_VLLM_VENV to a venv that '{SCRIPT.name} install' made, or run .ci/nightly"
    return Path(named)


@contextmanager
def vllm_server(model: Path, **settings: str) -> Iterator[str]:
    """A server of the folder ``model``; its URL. ``settings`` are environment variables of the script."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            ["sh", str(SCRIPT), "serve", str(vllm_venv()), str(model)],
            env={**os.environ, "PORT": str(port), **settings},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            if not _comes_up(process, url):
                log.seek(0)
                raise AssertionError(f"vLLM did not start:\n{log.read().decode(errors='replace')[-4000:]}")
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def _comes_up(process: subprocess.Popen[bytes], url: str) -> bool:
    until = time.monotonic() + LONGEST_START
    while process.poll() is None and time.monotonic() < until:
        if answers(url):
            return True
        time.sleep(0.5)
    return False


def answers(url: str) -> bool:
    """Return whether the server at ``url`` is ready."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
