"""No traceback for a user's mistake: one list of wrong uses, each answered in a few lines with the way out and an exit code.

A row is the command line, and words that the answer must hold: what was wrong, or what to type. Each ends with exit code 2,
since nothing was done. ``FILE/x`` is a path below a file, where not even root can write, ``TAKEN`` a port at which another
program listens, ``DEAD`` an address at which no server does: that is no mistake, and ends with exit code 1.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from palestra.cli import main
from palestra.cli.endings import ExitCode
from tests.cli.workspace import furnish

EASY = "game:GuessTheNumber-v0-easy"

WRONG = f"""
# the command and its options
frobnicate                                          | No such command
--nosuch                                            | No such option
list a b                                            | unexpected extra argument
eval                                                | Missing argument
eval random --envs {EASY} -n 0                      | greater than or equal to 1
demo -n 1                                           | greater than or equal to 2
view run --port 99999                               | 65535
export run --to word                                | openai
export run --to openai --select worst               | solved

# ids
list nosuchthing                                    | palestra list
show nosuch:Env                                     | no environment
show game:Sudok-v0                                  | Did you mean "game:Sudoku-v0"
play game:Sudok-v0                                  | Did you mean
play nomod:Env                                      | nomod
play things:Plain                                   | neither an Env nor an AsyncEnv
play things:number                                  | not a class
play {EASY} --tool hammer                           | tool = "hammer" is unknown
play {EASY} --tool search?index=hollow               | palestra index build
check game:Sudok-v0                                 | Did you mean
check broken:Env                                    | broken.py, line 1
check raises:Env                                    | raises.py, line 2
check needy:Env                                     | surely_not_installed
check {EASY} --skip nosuchcheck                     | nosuchcheck
eval random --envs game:Sudok-v0 -o r1              | Did you mean
rollout random --envs game:Sudok-v0 -o r1           | Did you mean
serve game:Sudok-v0                                 | Did you mean
serve nomod:Env                                     | nomod
prefetch game:Sudoku-v0                             | uses no data set
model tiny --envs nosuch -o m1                      | no environment
model fetch gpt5                                    | smollm2

# policies
eval gpt5 --envs {EASY} -o r2                       | --base-url
eval nomod:x --envs {EASY} -o r2                    | no module 'nomod'
eval broken:answer --envs {EASY} -o r2              | broken.py, line 1
eval things:nothing --envs {EASY} -o r2             | has no 'nothing'
eval things:number --envs {EASY} -o r2              | neither a policy nor a function
eval things:Needs --envs {EASY} -o r2               | things:Needs
eval hf:hollow --envs {EASY} -o r2                  | no model at hollow
eval vllm:DEAD --envs {EASY} -o r2                  | DEAD does not answer
eval vllm:localhost --envs {EASY} -o r2             | http://
eval m --base-url localhost:1 --envs {EASY} -o r2   | http://
rollout gpt5 --envs {EASY} -o r2                    | none of random, oracle, tiny
eval solver --envs {EASY} -o r2                     | Your own policy is module:name
eval orcale --envs {EASY} -o r2                     | Did you mean oracle?
eval random -e {EASY} --strategy react?keeps=1 -o r2 | Did you mean keep?
eval random -e {EASY} --history last -o r2          | --history is for models
eval random -e {EASY} --scaling --judge nobody -o r2 | is unknown
eval random -e {EASY} --judge likelihood -o r2      | --scaling
eval random -e {EASY} --max-turns 1 --max-turns 2 -o r2 | --scaling
eval random -e {EASY} --scaling --budget 9ktokens -o r2 | --budget
scaling random -e {EASY} --turns 1 --samples 2 -o r2 | --max-turns

# budgets, clusters
eval random --envs {EASY} --budget lots -o r3       | 5usd
eval m --base-url http://h --budget 5usd -e {EASY} -o r3 | --prices
eval random --envs {EASY} --cluster-config nowhere.toml -o r3 | nowhere.toml
eval random --envs {EASY} --cluster-config pools.toml -o r3 | pools
rollout random --envs {EASY} --cluster-config syntax.toml -o r3 | syntax.toml
rollout random --envs {EASY} --cluster-config binary -o r3 | binary

# targets that cannot be written
demo -o FILE/page.html                              | cannot write
demo -o hollow                                      | is a folder
eval random --envs {EASY} -o FILE/r                 | cannot write
eval random --envs {EASY} -o notes.txt              | notes.txt
view run --export FILE/page.html                    | cannot write
view run --export hollow                            | is a folder
export run --to openai -o FILE/x                    | cannot write
export run --to parquet -o hollow                   | is a folder
export run --to atif -o FILE/x                      | cannot write
export run --to atif -o full                        | not empty
import run --from openai -o FILE/x                  | cannot write
regrade run -o FILE/x                               | cannot write
plot learned -o FILE/x.svg                          | cannot write
plot training -o curves.pdf                         | .png
leaderboard run -o FILE/x.md                        | cannot write
leaderboard run --table FILE/x.json                 | cannot write
model tiny -o FILE/model                            | cannot write
model tiny -o full                                  | not a model
model fetch smollm2 -o FILE/model                   | cannot write
index build corpus.jsonl FILE/index                 | cannot write
index build corpus.jsonl full                       | exists already
serve {EASY} --token-file FILE/token                | FILE/token
train good.toml -o FILE/run                         | FILE/run

# files and folders that are missing, or are something else
view nowhere                                        | nowhere
view hollow                                         | trajectories.jsonl
view other --export page.html                       | other
view garbage --export page.html                     | garbage
compare nowhere run                                 | nowhere
compare other run                                   | other
compare garbage run                                 | garbage
compare learned run                                 | --by seed
regrade nowhere                                     | nowhere
regrade garbage                                     | garbage
export nowhere --to openai                          | is not a run
export other --to openai                            | other
export garbage --to openai                          | garbage
import nowhere --from openai -o r4                  | there is no file nowhere
import notes.txt --from openai -o r4                | line 1
import binary --from openai -o r4                   | line 1
import binary --from parquet -o r4                  | not a Parquet file
import hollow --from parquet -o r4                  | hollow
import notes.txt --from inspect -o r4               | notes.txt
import hollow --from inspect -o r4                  | hollow
import notes.txt --from atif -o r4                  | notes.txt
import hollow --from atif -o r4                     | hollow
import empty.jsonl --from openai -o r4              | no episode
import notes.txt --from preferences -o r4           | cannot be imported
import notes.txt --from openai -o run               | holds a run already
plot nowhere                                        | not a training run
plot run                                            | is an evaluation, not a training run
plot fresh                                          | no metrics.jsonl
plot training                                       | metrics.jsonl
plot training --x moons                             | step, tokens
plot learned --metric rewerd                        | no run has rewerd; the metrics are reward
plot learned --by advantage.magic                   | no run has a key advantage.magic
leaderboard nowhere                                 | nowhere
leaderboard --table bad_table.json                  | bad_table.json
leaderboard --reference nowhere.json                | nowhere.json
leaderboard --reference bad_table.json              | bad_table.json
leaderboard --name x                                | describe one run
index build nowhere.jsonl                           | nowhere.jsonl
index build hollow                                  | hollow
index build empty.jsonl                             | empty.jsonl is empty
index build lines.jsonl lines.index                 | line 1
index build torn.jsonl torn.index                   | line 2
index build binary binary.index                     | line 1
index search hollow word                            | palestra index build
index search notes.txt word                         | notes.txt
index serve hollow                                  | palestra index build
serve {EASY} --token-file short_token               | 128 bits
serve {EASY} --token-file no_token                  | no token
serve {EASY} --token-file open_token                | chmod 600
regrade run --envs nowhere:Env                      | nowhere
play remote:DEAD#game:X                             | no server answers
serve {EASY} --token-file hollow                    | hollow
serve {EASY} --tls nowhere.pem nowhere.key          | nowhere.pem
serve {EASY} --tls notes.txt notes.txt              | notes.txt
serve {EASY} --host 192.0.2.1                       | cannot listen
serve {EASY} --host nosuchhost.invalid              | nosuchhost.invalid
serve {EASY} --port TAKEN                           | cannot listen
view run --no-browser --port TAKEN                  | --port

# recipes and their overrides
train nowhere.toml                                  | cpu/guess
train hollow                                        | hollow
train binary                                        | binary
train syntax.toml                                   | syntax.toml
train unknown.toml                                  | no "stepz"
train types.toml                                    | steps
train good.toml stepz=3                             | no "stepz"
train good.toml steps                               | learner.learning_rate=1e-5
train good.toml =3                                  | learner.learning_rate=1e-5
train good.toml steps=many                          | steps
train good.toml steps.deep=3                        | not a table
train good.toml advantage.method=magic              | write one of
train good.toml --ranks 2                           | --cluster
"""

ROWS = [
    tuple(part.strip() for part in row.rsplit("|", 1)) for row in WRONG.splitlines() if row.strip() and not row.startswith("#")
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    furnish(folder)
    return folder


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def dead() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def filled(place: Path, taken: int, dead: str) -> dict[str, str]:
    return {"FILE": "notes.txt", "TAKEN": str(taken), "DEAD": dead}


def fill(text: str, values: dict[str, str]) -> str:
    return re.sub("|".join(values), lambda match: values[match[0]], text)


def results(place: Path) -> set[Path]:
    """The files in ``place``, apart from Python's caches and the locks of folders."""
    return {path for path in place.rglob("*") if path.is_file() and path.suffix != ".pyc" and path.name != ".lock"}


def needs(line: str) -> str:
    """The optional module without which a row would be answered otherwise."""
    command, *rest = line.split()
    if command in ("train", "model") or re.search(r"\b(hf|vllm|sglang):", line):
        return "torch"
    if command == "index" or "search?" in line:
        return "tantivy"
    if command == "serve":
        return "starlette"
    return "pyarrow" if "parquet" in rest else ""


def assert_answered(said: str, words: str) -> None:
    assert "Traceback" not in said, said
    assert "bug" not in said, said
    assert words.lower() in " ".join(said.replace("│", " ").split()).lower(), said
    assert len(said.splitlines()) <= 12, said


def test_there_are_many_wrong_uses() -> None:
    assert len(ROWS) >= 100
    assert len(set(ROWS)) == len(ROWS)


@pytest.mark.parametrize(("line", "words"), ROWS, ids=[row[0] for row in ROWS])
def test_a_wrong_use_is_answered(
    line: str,
    words: str,
    place: Path,
    filled: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if module := needs(line):
        pytest.importorskip(module)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    before = results(place)
    code = main(shlex.split(fill(line, filled)))
    out, err = capfd.readouterr()
    assert code == (ExitCode.FAILED if "DEAD" in line else ExitCode.MISUSED), out + err
    assert_answered(err or out, fill(words, filled))
    assert results(place) == before, "a refused command leaves something behind"


def test_a_refused_serve_makes_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("starlette")
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "game:Sudok-v0"]) == ExitCode.MISUSED
    assert not list(tmp_path.iterdir())


@pytest.mark.gate
@pytest.mark.timeout(400)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("eval hf:nowhere --envs game:Sudoku-v0-easy -o r9", "no model at nowhere"),
        ("check broken:Env", "broken.py, line 1"),
        ("view nowhere", "is not a run"),
        ("demo -o notes.txt/page.html", "cannot write notes.txt/page.html"),
    ],
)
def test_what_only_a_process_of_its_own_shows(place: Path, line: str, words: str) -> None:
    """Another folder than the interpreter's, the installed form of the command, no capturing of its streams."""
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"}
    code = "import sys; from palestra.cli import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", code, *shlex.split(line)]
    done = subprocess.run(command, check=False, cwd=place, capture_output=True, text=True, timeout=300, env=own)
    assert done.returncode == ExitCode.MISUSED, done.stderr
    assert_answered(done.stderr, words)
