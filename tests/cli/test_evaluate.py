import asyncio
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.cli.settings import default_folder
from palestra.errors import UsageError
from palestra.evaluation import read_report
from palestra.rollout import read_trajectories
from tests.engines.servers import Server, serving
from tests.policies.chat_server import ChatServer

runner = CliRunner()


def palestra(*arguments: str) -> str:
    done = runner.invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_eval_compare_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = palestra("eval", "random", "--envs", "game:GuessTheNumber-v0-*", "game:Sudoku-v0-easy", "-n", "8", "-g", "2")
    assert "| game:Sudoku-v0-easy |" in shown
    assert "game:GuessTheNumber-v0-hard |" in shown
    found = "runs/random,game-GuessTheNumber-v0-all,game-Sudoku-v0-easy"
    assert f"wrote {found} " in shown
    palestra("eval", "oracle", "--envs", "game:GuessTheNumber-v0-*", "game:Sudoku-v0-easy", "-n", "8", "-g", "2", "-o", "best")
    told = palestra("compare", "best", found)
    named, other, difference, *_ = told.splitlines()
    assert named.split() == ["best", "1.00", *named.split()[2:]]
    assert other.startswith(f"{found}  0.")
    assert difference.startswith("difference +0.")
    assert "corrected for 2 families" in told
    assert json.loads(palestra("compare", "best", found, "--success", "--json"))["difference"]["tasks"] == 32
    palestra("view", "best", found, "--export", "page.html")
    assert Path("page.html").stat().st_size > 10_000
    told = palestra("regrade", found)
    assert "scored again: 64 of 64 episodes of random" in told
    assert f"wrote {found}/regrade-0001" in told


def test_a_policy_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("my_players.py").write_text("def five(text):\n    return '\\\\boxed{5}'\n\nnumber = 3\n")
    assert "# five" in palestra("eval", "my_players:five", "-e", "game:GuessTheNumber-v0-easy", "-n", "3")
    with pytest.raises(UsageError, match="neither a policy nor a function"):
        palestra("eval", "my_players:number", "-e", "game:GuessTheNumber-v0-easy")


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_the_default_folder_belongs_to_the_policy_and_the_environments(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind = "rollout," if command == "rollout" else ""
    for env in ("math:Sums", "game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-*"):
        told = [palestra(command, "oracle", "-e", env, "-n", "2") for _ in range(2)]  # the second resumes: nothing is refused
        folder = f"runs/{kind}oracle,{env.replace(':', '-').replace('*', 'all')}"
        assert all(f"wrote {folder} " in one for one in told)
    assert len(list(Path("runs").iterdir())) == 3


def test_a_long_default_folder_is_cut_and_still_tells_apart() -> None:
    many = [f"game:Game{number}-v0" for number in range(40)]
    first, second = default_folder("oracle", *many), default_folder("oracle", *many, "math:Sums")
    assert first != second
    assert first == default_folder("oracle", *many)
    assert len(first.name) == len(second.name) == 100
    assert "password" not in str(default_folder("vllm:http://user:password@host:1", "math:Sums"))


def test_a_rollout_in_which_all_fails_shows_the_cause_and_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("coin_env.py").write_text(
        "import palestra\n\n\nclass Coin(palestra.Env):\n"
        "    def reset(self, *, seed=None, task=None):\n"
        "        super().reset(seed=seed, task=task)\n        return 'Heads?', {}\n\n"
        "    def step(self, action):\n        return palestra.Step('', 1.0, True, False, {})\n"
    )
    done = runner.invoke(app, ["rollout", "random", "-e", "coin_env:Coin", "-n", "3", "-o", "run"], catch_exceptions=False)
    assert done.exit_code == 1
    assert "failed: 3 × " in done.stdout
    assert (
        "Coin has no sample_random_action(): write the method, which returns an action drawn from self.action_rng"
        in done.stdout
    )
    assert "every episode failed" in done.stderr
    with pytest.raises(UsageError, match=r"run has no scored episode \(3 of 3 failed, the first with .*sample_random_action"):
        palestra("compare", "run", "run")


def test_the_first_failure_is_shown_while_the_evaluation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("weary.py").write_text(
        "asked = 0\n\n\ndef policy(text):\n    global asked\n    asked += 1\n"
        "    if asked in (5, 7):\n        raise RuntimeError('no [answer]')\n    return '\\\\boxed{5}'\n"
    )
    done = runner.invoke(app, ["eval", "weary:policy", "-e", "game:GuessTheNumber-v0-easy", "-n", "6", "-o", "run"])
    assert done.exit_code == 0, done.output
    assert done.stderr.count("an episode of game:GuessTheNumber-v0-easy failed: policy, RuntimeError: no [answer]") == 1
    assert "2 × policy, RuntimeError" in done.stdout


def test_what_is_no_run_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        palestra("compare", str(tmp_path), str(tmp_path))


@pytest.mark.slow
async def test_a_model_behind_an_api(tmp_path: Path) -> None:
    server = ChatServer({"429": 0.1, "500": 0.05})
    server.reply = {"content": "\\boxed{5}"}
    arguments = ["eval", "some-model", "--envs", "game:GuessTheNumber-v0-easy", "-n", "12", "-g", "2", "--prices", "1", "2"]
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
    assert told.startswith("wrote 2" if form == "inspect" else "wrote run.")
    assert told.endswith(": 5 episodes\n")
    out = told.split()[1].rstrip(":")
    assert "5 episodes" in palestra("import", out, "--from", form, "-o", "again")
    assert len(Path("again/trajectories.jsonl").read_bytes().splitlines()) == 5
    with pytest.raises(UsageError, match="holds a run already"):
        palestra("import", out, "--from", form, "-o", "again")


@pytest.mark.torch
@pytest.mark.slow
def test_a_model_in_a_folder(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    palestra("eval", f"hf:{tiny_model}", "-e", "game:GuessTheNumber-v0-easy", "-n", "3", "--max-tokens", "6", "-o", "run")
    report = read_report("run")
    assert report.policy == f"hf:{tiny_model}"
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
@pytest.mark.slow
async def test_a_model_behind_a_server_that_samples_tokens(kind: str, tmp_path: Path, tiny_model: Path) -> None:
    pytest.importorskip("transformers")
    async with serving(Server().app()) as url:
        arguments = ["eval", f"{kind}:{url}", "-e", "game:GuessTheNumber-v0-easy", "-n", "3", "--max-tokens", "6"]
        told = await asyncio.to_thread(palestra, *arguments, "--tokenizer", str(tiny_model), "-o", str(tmp_path / "run"))
    assert "3 of 3 episodes" in told
    assert b'"segments":[{' in (tmp_path / "run" / "trajectories.jsonl").read_bytes()


def test_tools_and_wrappers_of_ones_own_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("my_parts.py").write_text(
        "import palestra\nfrom palestra.tools import tool\n\n\n"
        '@tool\ndef shout(text: str) -> str:\n    "Shouts."\n    return text.upper()\n\n\n'
        "class Once(palestra.Wrapper):\n    pass\n\n\n"
        "def asks(text):\n    if 'HELLO' in text:\n        return '\\\\boxed{5}'\n"
        '    return \'<tool_call>{"name": "shout", "arguments": {"text": "hello"}}</tool_call>\'\n'
    )
    parts = ["--tool", "my_parts:shout", "--wrapper", "my_parts:Once", "--wrapper", "TurnLimit?turns=4"]
    easy = ["-e", "game:GuessTheNumber-v0-easy", "-n", "2"]
    for command in ("eval", "rollout"):
        palestra(command, "my_parts:asks", *easy, *parts, "-o", command)
        config = json.loads(Path(command, "config.json").read_text())
        assert (config["tools"], config["wrappers"]) == (["my_parts:shout"], ["my_parts:Once", "TurnLimit?turns=4"])
        played = list(read_trajectories(f"{command}/trajectories.jsonl"))
        assert all("HELLO" in str(one.turns[1].observation) for one in played)
        assert max(len(one.turns) for one in played) <= 8
    assert "my_parts:shout" in Path("eval/report.md").read_text()
