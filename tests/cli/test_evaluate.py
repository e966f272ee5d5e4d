import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.evaluation import read_report
from tests.engines.servers import Server, serving
from tests.policies.chat_server import ChatServer

runner = CliRunner()


def palestra(*arguments: str) -> str:
    done = runner.invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_eval_compare_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = palestra("eval", "random", "--envs", "game:GuessTheNumber-v0-*", "game:Sudoku-v0-easy", "-n", "8", "-r", "2")
    assert "| game:Sudoku-v0-easy |" in shown
    assert "game:GuessTheNumber-v0-hard |" in shown
    assert "wrote runs/random" in shown
    palestra("eval", "oracle", "--envs", "game:GuessTheNumber-v0-*", "game:Sudoku-v0-easy", "-n", "8", "-r", "2", "-o", "best")
    told = palestra("compare", "best", "runs/random")
    assert told.startswith("difference +0.")
    assert "corrected for 2 families" in told
    assert json.loads(palestra("compare", "best", "runs/random", "--success", "--json"))["difference"]["tasks"] == 32
    palestra("view", "best", "runs/random", "--export", "page.html")
    assert Path("page.html").stat().st_size > 10_000
    told = palestra("regrade", "runs/random")
    assert "scored again: 64 of 64 episodes of random" in told
    assert "wrote runs/random/regrade-0001" in told


def test_a_policy_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("my_players.py").write_text("def five(text):\n    return '\\\\boxed{5}'\n\nnumber = 3\n")
    assert "# five" in palestra("eval", "my_players:five", "-e", "game:GuessTheNumber-v0-easy", "-n", "3")
    with pytest.raises(UsageError, match="neither a policy nor a function"):
        palestra("eval", "my_players:number", "-e", "game:GuessTheNumber-v0-easy")


def test_what_is_no_run_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        palestra("compare", str(tmp_path), str(tmp_path))


async def test_a_model_behind_an_api(tmp_path: Path) -> None:
    server = ChatServer({"429": 0.1, "500": 0.05})
    server.reply = {"content": "\\boxed{5}"}
    arguments = ["eval", "some-model", "--envs", "game:GuessTheNumber-v0-easy", "-n", "12", "-r", "2", "--prices", "1", "2"]
    async with serving(server.app()) as url:
        told = await asyncio.to_thread(palestra, *arguments, "--base-url", f"{url}/v1", "-o", str(tmp_path), "--budget", "1usd")
    assert "24 of 24 episodes" in told
    report = read_report(tmp_path)
    assert report.policy == "some-model"
    assert report.about["temperature"] == "1"
    assert report.suite.dollars is not None
    assert report.suite.dollars.total == pytest.approx(server.answered * (10 * 1 + 7 * 2) / 1e6)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["some-model"], "needs its --base-url"),
        (["some-model", "--base-url", "http://127.0.0.1:9/v1", "--budget", "1usd"], "needs --prices"),
        (["random", "--budget", "much"], "is not a budget"),
    ],
)
def test_mistakes_are_told(arguments: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        palestra("eval", *arguments, "-e", "game:GuessTheNumber-v0-easy")


@pytest.mark.parametrize("form", ["parquet", "openai", "inspect", "atif"])
def test_export_and_import(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if form == "parquet":
        pytest.importorskip("pyarrow")
    palestra("eval", "random", "-e", "game:GuessTheNumber-v0-easy", "-n", "5", "-o", "run")
    told = palestra("export", "run", "--to", form)
    assert told.startswith("wrote run.")
    assert told.endswith(": 5 episodes\n")
    out = told.split()[1].rstrip(":")
    assert "5 episodes" in palestra("import", out, "--from", form, "-o", "again")
    assert len(Path("again/trajectories.jsonl").read_bytes().splitlines()) == 5
    with pytest.raises(UsageError, match="holds a run already"):
        palestra("import", out, "--from", form, "-o", "again")


@pytest.mark.torch
def test_a_model_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from palestra.models import build_tiny

    monkeypatch.chdir(tmp_path)
    folder = build_tiny(tmp_path / "tiny", envs="game:GuessTheNumber*", words=400, width=32)
    palestra("eval", f"hf:{folder}", "-e", "game:GuessTheNumber-v0-easy", "-n", "3", "--max-tokens", "6", "-o", "run")
    report = read_report("run")
    assert report.policy == f"hf:{folder}"
    assert report.about["longest answer"] == "6"
    words = json.loads(Path("run/vocabulary.json").read_text())
    assert "boxed" in "".join(words)
    assert any(b'"segments":[{' in line for line in Path("run/trajectories.jsonl").read_bytes().splitlines())


@pytest.mark.torch
def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(UsageError, match="there is no model at"):
        palestra("eval", f"hf:{tmp_path}", "-e", "game:GuessTheNumber-v0-easy", "-n", "3", "-o", str(tmp_path / "run"))


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_a_model_behind_a_server_that_samples_tokens(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from palestra.models import build_tiny

    folder = build_tiny(tmp_path / "tiny", envs="game:GuessTheNumber*", words=400, width=32)
    async with serving(Server().app()) as url:
        arguments = ["eval", f"{kind}:{url}", "-e", "game:GuessTheNumber-v0-easy", "-n", "3", "--max-tokens", "6"]
        told = await asyncio.to_thread(palestra, *arguments, "--tokenizer", str(folder), "-o", str(tmp_path / "run"))
    assert "3 of 3 episodes" in told
    assert b'"segments":[{' in (tmp_path / "run" / "trajectories.jsonl").read_bytes()
