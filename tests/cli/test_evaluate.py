"""``palestra eval``, ``rollout``, ``compare``, ``export`` and ``import``."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.cli.options import default_folder
from palestra.errors import UsageError
from palestra.evaluation import read_report
from palestra.rollouts import read_trajectories
from tests.cli.invoking import palestra
from tests.inference.servers.servers import Server, serving
from tests.policies.chat_server import ChatServer

EASY = "game:GuessTheNumber-v0-easy"
OWN = {
    "my_players": """
def five(text):
    return '\\\\boxed{5}'

number = 3
""",
    "coin_env": """
import palestra

class Coin(palestra.Env):
    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        return 'Heads?', {}

    def step(self, action):
        return palestra.Step('', 1.0, True, False, {})
""",
    "weary": """
asked = 0

def policy(text):
    global asked
    asked += 1
    if asked in (5, 7):
        raise RuntimeError('no [answer]')
    return '\\\\boxed{5}'
""",
    "my_parts": """
import palestra
from palestra.tools import tool

@tool
def shout(text: str) -> str:
    "Shouts."
    return text.upper()

class Once(palestra.Wrapper):
    pass

def asks(text):
    if 'HELLO' in text:
        return '\\\\boxed{5}'
    return '<tool_call>{"name": "shout", "arguments": {"text": "hello"}}</tool_call>'
""",
    "my_strategy": """
class Polite:
    def __init__(self, policy, word):
        self.policy, self.name = policy, f"polite {word}"
        self.privileged = True

    async def act(self, conversation):
        return await self.policy.act(conversation)

def turns(trajectory):
    return -len(trajectory.turns)
""",
}
"""Modules of the user's own, in the working folder."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    for name, text in OWN.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_eval_compare_view_and_regrade() -> None:
    suite = ["--envs", "game:GuessTheNumber-v0-*", "game:Sudoku-v0-easy", "-n", "8", "-g", "2"]
    shown = palestra("eval", "random", *suite)
    assert "| game:Sudoku-v0-easy |" in shown
    assert "game:GuessTheNumber-v0-hard |" in shown
    random = "runs/random,game-GuessTheNumber-v0-all,game-Sudoku-v0-easy"
    assert f"wrote {random} " in shown
    palestra("eval", "oracle", *suite, "-o", "best")
    shown = palestra("compare", "best", random)
    first, second, difference, *_ = shown.splitlines()
    assert first.split()[:2] == ["best", "1.00"]
    assert second.startswith(f"{random}  0.")
    assert difference.startswith("difference +0.")
    assert "corrected for 2 families" in shown
    assert json.loads(palestra("compare", "best", random, "--success", "--json"))["difference"]["tasks"] == 32
    assert palestra("view", ".", "--export", "page.html") == "wrote page.html\n"
    assert 'id="episode-1-0"' in Path("page.html").read_text(), "both runs in the folder"
    shown = palestra("regrade", random)
    assert "scored again: 64 of 64 episodes of random" in shown
    assert f"wrote {random}/regrade-0001" in shown


def test_a_policy_of_ones_own() -> None:
    assert "# five" in palestra("eval", "my_players:five", "-e", EASY, "-n", "3")


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_the_default_folder_belongs_to_the_policy_and_the_environments(command: str) -> None:
    kind = "rollout," if command == "rollout" else ""
    for env in ("math:Sums", EASY, "game:GuessTheNumber-v0-*"):
        shown = [palestra(command, "oracle", "-e", env, "-n", "2") for _ in range(2)]  # the second resumes: nothing is refused
        run = f"runs/{kind}oracle,{env.replace(':', '-').replace('*', 'all')}"
        assert all(f"wrote {run} " in text for text in shown)
    assert len(list(Path("runs").iterdir())) == 3


def test_a_long_default_folder_is_cut_and_still_tells_apart() -> None:
    many = [f"game:Game{number}-v0" for number in range(40)]
    first, second = default_folder("oracle", *many), default_folder("oracle", *many, "math:Sums")
    assert first != second
    assert first == default_folder("oracle", *many)
    assert len(first.name) == len(second.name) == 100
    assert "password" not in str(default_folder("vllm:http://user:password@host:1", "math:Sums"))


def test_a_rollout_in_which_all_fails_shows_the_cause_and_the_way_out() -> None:
    done = CliRunner().invoke(app, ["rollout", "random", "-e", "coin_env:Coin", "-n", "3", "-o", "run"])
    assert done.exit_code == 1
    assert re.search(r"failed: 3 × .*Coin has no sample_random_action\(\): write the method", done.stdout, re.DOTALL)
    assert "every episode failed" in done.stderr
    with pytest.raises(UsageError, match=r"run has no scored episode \(3 of 3 failed, the first with .*sample_random_action"):
        palestra("compare", "run", "run")


def test_the_first_failure_is_shown_while_the_evaluation_goes_on() -> None:
    done = CliRunner().invoke(app, ["eval", "weary:policy", "-e", EASY, "-n", "6", "-o", "run"])
    assert done.exit_code == 0, done.output
    assert done.stderr.count(f"an episode of {EASY} failed: policy, RuntimeError: no [answer]") == 1
    assert "2 × policy, RuntimeError" in done.stdout


@pytest.mark.slow
async def test_a_model_behind_an_api_with_prices() -> None:
    server = ChatServer({"429": 0.1, "500": 0.05})
    server.reply = {"content": "\\boxed{5}"}
    words = ["eval", "some-model", "--envs", EASY, "-n", "12", "-g", "2", "--prices", "1", "2", "--budget", "1usd", "-o", "run"]
    async with serving(server.app()) as url:
        shown = await asyncio.to_thread(palestra, *words, "--base-url", f"{url}/v1")
    assert "24 of 24 episodes" in shown
    report = read_report("run")
    assert (report.policy, report.about["temperature"]) == ("some-model", "1")
    assert report.suite.dollars is not None
    assert report.suite.dollars.total == pytest.approx(server.answered * (10 * 1 + 7 * 2) / 1e6)


@pytest.mark.torch
@pytest.mark.slow
def test_a_model_in_a_folder(tiny_model: Path) -> None:
    pytest.importorskip("transformers")
    palestra("eval", f"hf:{tiny_model}", "-e", EASY, "-n", "3", "--max-tokens", "6", "-o", "run")
    report = read_report("run")
    assert (report.policy, report.about["longest answer"]) == (f"hf:{tiny_model}", "6")
    assert "boxed" in "".join(json.loads(Path("run/vocabulary.json").read_text()))
    assert any(b'"segments":[{' in line for line in Path("run/trajectories.jsonl").read_bytes().splitlines())


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.slow
async def test_a_model_behind_a_server_that_samples_tokens(kind: str, tiny_model: Path) -> None:
    pytest.importorskip("transformers")
    words = ["-e", EASY, "-n", "3", "--max-tokens", "6", "--tokenizer", tiny_model, "-o", "run"]
    async with serving(Server().app()) as url:
        assert "3 of 3 episodes" in await asyncio.to_thread(palestra, "eval", f"{kind}:{url}", *words)
    assert b'"segments":[{' in Path("run/trajectories.jsonl").read_bytes()


@pytest.mark.parametrize("form", ["parquet", "openai", "inspect", "atif"])
def test_export_and_import(form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    palestra("eval", "random", "-e", EASY, "-n", "5", "-o", "run")
    shown = palestra("export", "run", "--to", form)
    assert shown.startswith("wrote 2" if form == "inspect" else "wrote run.")
    assert shown.endswith(": 5 episodes\n")
    out = shown.split()[1].rstrip(":")
    assert "5 episodes" in palestra("import", out, "--from", form, "-o", "again")
    assert len(Path("again/trajectories.jsonl").read_bytes().splitlines()) == 5
    with pytest.raises(UsageError, match="holds a run already"):
        palestra("import", out, "--from", form, "-o", "again")


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_tools_and_wrappers_of_ones_own_by_name(command: str) -> None:
    parts = ["--tool", "my_parts:shout", "--wrapper", "my_parts:Once", "--wrapper", "TurnLimit?turns=4"]
    palestra(command, "my_parts:asks", "-e", EASY, "-n", "2", *parts, "-o", "run")
    config = json.loads(Path("run/config.json").read_text())
    assert (config["tools"], config["wrappers"]) == (["my_parts:shout"], ["my_parts:Once", "TurnLimit?turns=4"])
    played = list(read_trajectories("run/trajectories.jsonl"))
    assert all("HELLO" in str(episode.turns[1].observation) for episode in played)
    assert max(len(episode.turns) for episode in played) <= 8
    if command == "eval":
        assert "my_parts:shout" in Path("run/report.md").read_text()


def test_scaling_draws_its_figure_and_resumes() -> None:
    command = ["eval", "random", "--envs", EASY, "--scaling", "-n", "6", "--max-turns", "1", "--max-turns", "4", "-g", "3"]
    shown = palestra(*command, "--judge", "my_strategy:turns")
    assert "| samples | pass@k | majority | best of k |" in shown
    run = Path(f"runs/scaling,random,{EASY.replace(':', '-')}")
    assert (run / "scaling.svg").read_text().startswith("<svg")
    assert sorted(path.name for path in run.iterdir() if path.is_dir()) == ["turns-0001", "turns-0004"]
    assert palestra(*command, "--judge", "my_strategy:turns") == shown


def test_a_strategy_is_part_of_the_name_and_may_be_ones_own() -> None:
    for strategy, name in {
        "tree?forks=10&width=2": "random + tree?width=2&forks=10",
        "my_strategy:Polite?word=please": "polite please",
    }.items():
        palestra("eval", "random", "--envs", EASY, "-n", "4", "-o", name, "--strategy", strategy)
        report = read_report(name)
        assert report.policy == name
        assert report.privileged
