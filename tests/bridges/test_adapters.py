"""The adapters load nothing, and the page of bridges says what was run of each."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from palestra import Task
from palestra.bridges.leases import first_messages, only_text
from palestra.bridges.rows import task_of, task_rows
from palestra.errors import UsageError

ROOT = Path(__file__).parents[2]
ADAPTERS = sorted(path for path in (ROOT / "src/palestra/bridges").glob("*.py") if path.stem != "__init__")
HEAVY = (
    "torch transformers ray trl verl openrlhf skyrl skyrl_gym verifiers tinker tinker_cookbook areal art gem harbor"
    " nemo_gym gymnasium agentlightning openai textarena inspect_ai openenv httpx"
)


@pytest.mark.slow
def test_no_adapter_loads_its_framework_at_import() -> None:
    names = ", ".join(f"palestra.bridges.{path.stem}" for path in ADAPTERS)
    code = f"import sys, {names}; print([name for name in {HEAVY.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


def test_the_page_of_bridges_is_generated() -> None:
    found = importlib.util.spec_from_file_location("generate_bridges", ROOT / "docs" / "generate_bridges.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run: python docs/generate_bridges.py"


@pytest.mark.parametrize("file", sorted((ROOT / "constraints").glob("*.txt")), ids=lambda path: path.stem)
def test_a_bridge_says_what_its_tests_run(file: Path) -> None:
    text = file.read_text()
    wanted = ["framework"] if "# read: " in text else ["framework", "group", "runs", "equal", "leaks"]
    assert [key for key in wanted if f"# {key}: " not in text] == []


def test_a_task_survives_the_way_through_a_row_of_another_trainers_data_set() -> None:
    task = Task("game:GuessTheNumber-v0", 3, split="test", params={"max_turns": 4})
    (row,) = task_rows([task], model="tiny")
    assert row["model"] == "tiny"
    for given in (json.loads(json.dumps(row)), {"task": json.loads(row["task"])}, {"task": task}):
        assert task_of(given) == task
    with pytest.raises(UsageError, match=r"only \['prompt'\]; make the rows with task_rows"):
        task_of({"prompt": "x"})


def test_the_messages_before_the_first_observation_are_kept_or_refused() -> None:
    info = {"opening": [{"role": "system", "content": "You are careful."}]}
    assert [message.role for message in first_messages("go", info)] == ["system", "user"]
    with pytest.raises(UsageError, match=r"further messages \(system\)"):
        only_text("go", info)
    assert only_text("go", {}) == "go"
