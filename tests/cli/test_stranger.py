"""A folder from a stranger is data: whatever it holds, no command runs code, sends a request, or shows a secret because of it.

The folder names environments as modules and as addresses, holds the modules, holds pickles under every name that a reader might
open, links out of itself, and is full of escape sequences and numbers that no measurement gives. A listener keeps every
connection, and a canary file appears if any of its code runs.
"""

import json
import pickle
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from palestra.cli import main
from palestra.evaluation import evaluate
from palestra.serve.tokens import HOST_VARIABLE, TOKEN_VARIABLE, new_token
from palestra.trajectory import LARGEST_REWARD
from tests.viewer.serving import serving

TOKEN = new_token()
SECRET = "the secret behind the link"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil"
BUG = 3


class _Bomb:
    """Writes the canary when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self._canary,)


class Stranger:
    """What the stranger sent, and the traps around it."""

    def __init__(self, place: Path) -> None:
        self.canary = place / "canary"
        self.folder = place / "run"
        self.clean = place / "clean"
        self.out = place / "out"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        secret = place / "secret"
        secret.write_text(json.dumps({"1": SECRET}))
        for run in (self.folder, self.clean):
            evaluate(["game:GuessTheNumber-v0-easy"], "random", n=2, group_size=2, out=run)
        self._poison_files(secret)
        self._poison_names()

    def _poison_files(self, secret: Path) -> None:
        code = f"open({str(self.canary)!r}, 'w').close()\nfrom palestra.suite.games.sudoku import Sudoku as Env\n"
        for module in ("canary_env.py", "conftest.py", "sitecustomize.py", "setup.py", "canary_env/__init__.py"):
            (self.folder / module).parent.mkdir(exist_ok=True)
            (self.folder / module).write_text(code)
        bomb = pickle.dumps(_Bomb(self.canary))
        step = self.folder / "checkpoints" / "step-000001"
        (step / "learner").mkdir(parents=True)
        for name in (".metadata", "__0_0.distcp", "state.pt", "generator.pt", "pytorch_model.bin", "model.safetensors"):
            (step / "learner" / name).write_bytes(bomb)
            (self.folder / name).write_bytes(bomb)
        for name in ("documents.pkl", "index.bin", "meta.json", "trajectories.index", "ledger.jsonl"):
            (self.folder / name).write_bytes(bomb)
        steps = [{"step": step, "reward": 1e308, f"success{ESCAPES}": 1e308} for step in range(2)]
        (self.folder / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
        (step / "manifest.json").write_text('{"step": 1, "files": {}}')
        (self.folder / "vocabulary.json").symlink_to(secret)

    def _poison_names(self) -> None:
        port = self.listener.getsockname()[1]
        names = [f"remote:http://127.0.0.1:{port}#x", f"openenv:http://127.0.0.1:{port}", "canary_env:Env", "http.server:test"]
        file = self.folder / "trajectories.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line, name in zip(lines, names, strict=True):
            line["task"]["env"] = name
            line["policy"] = f"canary_env:policy{ESCAPES}"
            line["turns"][0]["observation"] = f"http://127.0.0.1:{port}/ {ESCAPES}"
            line["turns"][-1]["reward"] = LARGEST_REWARD  # beyond it the whole file is refused
            line["turns"][-1]["info"] = {"deep": json.loads("[" * 50 + "]" * 50), "token": "x" * 1000}
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        config = json.loads((self.folder / "config.json").read_text())
        config |= {"envs": names, "policy": f"vllm:http://127.0.0.1:{port}", "about": {ESCAPES: ESCAPES, "model": "canary_env"}}
        (self.folder / "config.json").write_text(json.dumps(config))
        report = (self.folder / "report.json").read_text().replace("game:GuessTheNumber-v0-easy", names[2])
        (self.folder / "report.json").write_text(report.replace('"policy":"random"', json.dumps({"policy": ESCAPES})[1:-1]))


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    made = Stranger(tmp_path)
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.delenv(HOST_VARIABLE, raising=False)
    monkeypatch.chdir(made.folder)
    monkeypatch.syspath_prepend(made.folder)  # as `python -m palestra.cli` does
    yield made
    made.listener.close()


def harmless(stranger: Stranger, output: str) -> None:
    """Nothing of the stranger's happened, and nothing of ours got out."""
    assert not stranger.canary.exists()
    assert "canary_env" not in sys.modules
    with pytest.raises(BlockingIOError):  # nobody is waiting to be accepted
        stranger.listener.accept()
    assert not set(output) & set("\x1b\x07\x9b\u202e")
    files = (file for file in stranger.out.parent.rglob("*") if file.is_file() and file.resolve().name != "secret")
    for text in (output.encode(), *(file.read_bytes() for file in files)):
        assert TOKEN.encode() not in text
        assert SECRET.encode() not in text


COMMANDS = """
regrade RUN -o OUT
regrade .
export RUN --to parquet -o OUT
export RUN --to openai -o OUT
export RUN --to inspect -o OUT
export RUN --to atif -o OUT
export RUN --to preferences -o OUT
export RUN --to openai --select best -o OUT
import RUN/trajectories.jsonl --from openai -o OUT
import RUN/report.json --from inspect -o OUT
import RUN --from atif -o OUT
import RUN/index.bin --from parquet -o OUT
compare RUN CLEAN
compare CLEAN RUN --success
compare RUN RUN --json
leaderboard RUN --table OUT.json -o OUT
plot RUN -o OUT.svg
view RUN --export OUT
eval random -e game:GuessTheNumber-v0-easy -n 2 -o RUN
rollout random -e game:GuessTheNumber-v0-easy -n 2 -o RUN
index search RUN words
index build RUN/trajectories.jsonl OUT
eval hf:RUN -e game:GuessTheNumber-v0-easy -n 1 -o OUT
show RUN
"""


@pytest.mark.parametrize("line", COMMANDS.strip().splitlines())
def test_no_command_obeys_a_strangers_folder(stranger: Stranger, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    for name, place in {"RUN": stranger.folder, "CLEAN": stranger.clean, "OUT": stranger.out}.items():
        line = line.replace(name, str(place))
    code = main(line.split())
    printed = capfd.readouterr()
    harmless(stranger, printed.out + printed.err)
    assert code != BUG, printed.err


def test_the_viewer_serves_it_as_text(stranger: Stranger) -> None:
    names = ["search.json?text=x", "metrics.json", "vocabulary.json"]
    names += [f"episodes/{number}{kind}.json" for number in range(4) for kind in ("", "/pictures")]
    answers = b""
    for url in serving(stranger.folder):
        for path in ("", "catalog.json", *(f"runs/0/{name}" for name in names)):
            try:
                with urlopen(url + path, timeout=300) as answer:
                    answers += answer.read()
            except OSError as error:  # an answer of 404 is one of these
                answers += str(error).encode()
    harmless(stranger, "")
    assert SECRET.encode() not in answers
    assert TOKEN.encode() not in answers
