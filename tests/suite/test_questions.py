import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.suite.data.test_loader import write as write_rows

import palestra
from palestra.checking import CHECKS
from palestra.errors import Boundary, SchemaError, UsageError
from palestra.evaluation import evaluate
from palestra.registry import spec, typed
from palestra.trajectory import Task

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(7)]


def ends_with_a_dot(reply: str, row: dict[str, Any]) -> bool:
    return reply.endswith(".") and "question" in row


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(rows: list[dict[str, Any]], name: str = "questions.jsonl") -> str:
    return f"data:{write_rows(Path(name), rows)}"


@pytest.mark.parametrize("name", ["q.jsonl", "q.csv", "q.parquet"])
@pytest.mark.parametrize("grader", ["exact", "number"])
def test_a_file_is_played_in_every_format(name: str, grader: str) -> None:
    with palestra.make(write(ROWS, name), grader=grader) as env:
        observation, info = env.reset(task=Task(env.name, 0, index=3))
        assert str(observation).startswith("What is 3 + 1?\n\n")
        assert info["data"]["index"] == 3
        step = env.step("\\boxed{4}")
        assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)
        env.reset(task=Task(env.name, 0, index=3))
        assert env.step("\\boxed{5}").reward == 0.0


@pytest.mark.parametrize(
    ("row", "options", "shown"),
    [
        (
            {"prompt": {"text": "1 + 1?"}, "label": 2},
            "question=prompt.text&answer=label&instruction=Go%26say.",
            "1 + 1?\n\nGo&say.",
        ),
        ({"true": "1 + 1?", "1.50": 2}, "question=true&answer=1.50&instruction=0", "1 + 1?\n\n0"),
    ],
)
def test_fields_and_the_instruction_are_named_on_the_id_as_they_are_written(
    row: dict[str, Any], options: str, shown: str
) -> None:
    with palestra.make(f"{write([row])}?grader=number&{options}") as env:
        assert env.reset(seed=0)[0] == shown
        assert env.step(env.oracle()).info["success"]


@pytest.mark.parametrize(
    ("options", "rewards"),
    [
        ("", [0.0, 1.0]),
        ("&percent=true", [1.0, 1.0]),
        ("&hyphens=True", [0.0, 0.0]),
        ("&percent=false&hyphens=false", [0.0, 1.0]),
    ],
)
def test_a_data_file_says_whether_percent_signs_and_hyphens_count(options: str, rewards: list[float]) -> None:
    rows = [{"question": "How much?", "answer": "5%"}, {"question": "What did she do?", "answer": "re-sign"}]
    for row, reply, reward in zip(rows, ("5", "resign"), rewards, strict=True):
        with palestra.make(f"{write([row])}?grader=exact{options}") as env:
            env.reset(seed=0)
            assert env.step(f"\\boxed{{{reply}}}").reward == reward


@pytest.mark.parametrize("grader", [ends_with_a_dot, f"{__name__}:ends_with_a_dot"])
def test_a_grader_of_ones_own(grader: Any) -> None:
    with palestra.make(write([{"question": "End with a dot"}]), grader=grader) as env:
        assert env.reset(seed=0)[0] == "End with a dot"
        assert env.step("Yes.").info["success"]


def test_a_failing_grader_is_no_zero() -> None:
    id = write([{"question": "?"}])
    (played,) = palestra.collect(f"{id}?grader=builtins:divmod", lambda text: "x", n=1)
    assert played.reward is None
    assert played.failures[0].boundary is Boundary.GRADER


@pytest.mark.parametrize("n", [3, 7, 50])
def test_evaluation_plays_each_row_at_most_once(n: int) -> None:
    id = write(ROWS)
    seen: list[str] = []

    def policy(text: str) -> str:
        seen.append(text)
        return "\\boxed{1}"

    report = evaluate(id, policy, n=n)
    assert report.suite.issued == min(n, 7)
    assert set(Counter(seen).values()) == {1}
    assert len(seen) == min(n, 7)
    note = report.about.get("fewer tasks than asked for, each played once")
    assert note == (f"{id} (7)" if n > 7 else None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", r"^questions.jsonl:2: the line is not a JSON object"),
        ("[1]", r"questions.jsonl:2: the line is not a JSON object"),
        ('{"answer": 1}', r'^questions.jsonl:2: the row has no field "question"; it has answer. .* add question=NAME to'),
        ('{"question": "?", "answer": null}', r'^questions.jsonl:2: the field "answer" is empty: fill it'),
        ('{"question": "?", "answer": "x"}', r"questions.jsonl:2: the grader number needs a number as the answer, got 'x'"),
    ],
)
def test_a_broken_row_is_one_message_with_its_line(line: str, message: str) -> None:
    Path("questions.jsonl").write_text(f'{{"question": "1 + 1?", "answer": 2}}\n{line}\n')
    name = "data:questions.jsonl?grader=number"
    for call in (lambda: palestra.make(name), lambda: evaluate(name, "random"), lambda: palestra.collect(name, "random", n=1)):
        with pytest.raises(SchemaError, match=message):
            call()


def test_a_file_that_cannot_be_read_is_named() -> None:
    Path("q.csv").write_text("question,answer\n1 + 1?,2\n2 + 2?,4,5\n")
    with pytest.raises(SchemaError, match=r"q.csv:3: the row has more cells than the header"):
        palestra.make("data:q.csv")
    Path("folder.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"cannot read folder.jsonl: Is a directory"):
        palestra.make("data:folder.jsonl")
    pytest.importorskip("pyarrow")
    Path("text.parquet").write_text("question,answer")
    with pytest.raises(SchemaError, match=r"text.parquet: the file cannot be read as Parquet"):
        palestra.make("data:text.parquet")


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("data:absent.jsonl", r"cannot read absent.jsonl: No such file or directory\. A relative path starts at"),
        ("data:questions.txt", r"questions.txt is not a data file: its name must end in .jsonl, .csv, .parquet"),
        ("data:questions.jsonl?grade=number", r'data files have no option "grade"; there are grader, question, answer'),
        ("data:questions.jsonl?grader=numbr", r'no grader is called "numbr": write exact, number, maths, choice, code'),
        ("data:questions.jsonl?grader", r'"grader" is not an option of'),
        ("data:questions.jsonl?hyphens=maybe", r'hyphens .*"maybe".* true or false'),
        ("data:questions.jsonl?path=other.jsonl", r"names two files: write the path before the question mark only"),
        ("data:questions.jsonl?grader=os:sep", r'the grader "os:sep" is a str; expected a function'),
    ],
)
def test_a_wrong_name_is_refused_with_what_to_write(id: str, message: str) -> None:
    write(ROWS)
    with pytest.raises(UsageError, match=message):
        palestra.make(id)


def test_a_file_that_changes_is_read_again_and_is_another_run(here: Path) -> None:
    id = write(ROWS)
    rows = spec(id).read_rows()
    assert rows is not None
    assert len(rows) == 7
    evaluate(id, "oracle", n=1, out="runs/one")
    write(ROWS[:2])
    rows = spec(id).read_rows()
    assert rows is not None
    assert len(rows) == 2
    with pytest.raises(UsageError, match=r"questions\.jsonl has changed since the run began"):
        evaluate(id, "oracle", n=1, out="runs/one")


def test_a_grader_in_the_working_folder_is_found_when_the_user_typed_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (here / "strict_grader_here.py").write_text("def grade(reply, row):\n    return reply == row['answer']\n")
    id = f"{write(ROWS)}?grader=strict_grader_here:grade"
    with pytest.raises(UsageError, match="no module 'strict_grader_here'"):
        palestra.make(id)
    typed([id])
    with palestra.make(id) as env:
        env.reset(seed=0)
        assert env.step(env.oracle()).info["success"]


def takes_the_answer_out(reply: str, row: dict[str, Any]) -> bool:
    return bool(reply == row.pop("answer"))


def test_a_grader_that_changes_its_row_does_not_change_the_next_episode() -> None:
    with palestra.make(write(ROWS), grader=takes_the_answer_out) as env:
        for _ in range(2):
            env.reset(seed=0)
            assert env.step(env.oracle()).reward == 1.0


@pytest.mark.slow
def test_another_grader_of_ones_own_is_another_version(here: Path) -> None:
    id = f"{write(ROWS)}?grader=own_grader:grade"
    found = []
    for grade in ("True", "False", "True"):
        (here / "own_grader.py").write_text(f"def grade(reply, row):\n    return {grade}\n")
        code = f"from palestra.evaluation.versions import environment_versions as of; print(of([{id!r}])[{id!r}])"
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        found.append(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=variables).stdout)
    assert found[0] == found[2] != found[1]


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("grader", ["number", "choice"])
def test_no_text_breaks_or_slows_a_grader(grader: str) -> None:
    choices = [[str(n + k - n % 4) for k in range(4)] for n in range(400, 440)]
    rows = [{"question": f"Which is {n}?", "choices": near, "answer": str(n)} for n, near in enumerate(choices, 400)]
    wanted = {"episodes-run", "any-text"}
    skip = [check.name for check in CHECKS if check.name not in wanted]
    report = palestra.check_env(f"{write(rows)}?grader={grader}", n=10, skip=skip)
    assert report.ok, report.findings
