"""A task survives the way through a row of another trainer's data set."""

import json

import pytest

from palestra import Task
from palestra.errors import UsageError
from palestra.integrations.rows import task_of, task_rows

TASK = Task("game:GuessTheNumber-v0", 3, split="test", params={"max_turns": 4})


def test_a_task_comes_back_from_json_a_mapping_or_itself() -> None:
    (row,) = task_rows([TASK], model="tiny")
    assert row["model"] == "tiny"
    assert task_of(json.loads(json.dumps(row))) == TASK
    assert task_of({"task": json.loads(row["task"])}) == TASK
    assert task_of({"task": TASK}) == TASK


def test_a_row_without_a_task_says_what_it_has() -> None:
    with pytest.raises(UsageError, match=r"only \['prompt'\]; make the rows with task_rows"):
        task_of({"prompt": "x"})
