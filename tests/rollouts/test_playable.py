"""Mistakes of the caller are refused before the first episode."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.evaluation import evaluate_async
from palestra.serve import EnvServer
from palestra.serve.tokens import new_token

GAME = "game:GuessTheNumber-v0-easy"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.mark.parametrize("wrong", ["token", "id", "port"])
async def test_a_wrong_token_id_or_port_is_refused_before_the_first_episode(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = new_token()
    async with EnvServer(GAME, token) as server:
        monkeypatch.setenv("PALESTRA_TOKEN", new_token() if wrong == "token" else token)
        monkeypatch.setenv("PALESTRA_TOKEN_HOST", "127.0.0.1")
        url = f"http://127.0.0.1:{free_port()}" if wrong == "port" else server.url
        name = "game:Sudoku-v0-easy" if wrong == "id" else GAME
        told = {"token": "refused the token", "id": "refuses to play game:Sudoku-v0-easy", "port": "cannot be reached"}[wrong]
        with pytest.raises(UsageError, match=told):
            await evaluate_async(f"remote:{url}#{name}", "random", n=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


async def test_the_check_leaves_no_session_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    token = new_token()
    async with EnvServer(GAME, token) as server:
        monkeypatch.setenv("PALESTRA_TOKEN", token)
        monkeypatch.setenv("PALESTRA_TOKEN_HOST", "127.0.0.1")
        report = await evaluate_async(f"remote:{server.url}#{GAME}", "random", n=3)
        assert report.suite.scored == 3
        assert not server.sessions


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_a_wrapper_that_cannot_take_its_arguments_is_refused(command: str, tmp_path: Path) -> None:
    typed = [command, "random", "-e", GAME, "-n", "2", "-o", str(tmp_path / "run"), "--wrapper", "TurnLimit?turns=abc"]
    with pytest.raises(UsageError, match=r"TurnLimit\?turns=abc cannot be put around .*Correct its arguments"):
        CliRunner().invoke(app, typed, catch_exceptions=False)
    assert not (tmp_path / "run").exists()
