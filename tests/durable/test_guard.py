"""Which run a folder belongs to: what may change on resume, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from palestra.durable import CONFIG, Identity, claim
from palestra.errors import UsageError


def identity(run: str = "evaluation", **config: Any) -> Identity:
    base = {"policy": "random", "play": {"seed": 0, "concurrency": 4}, "n": 10, "versions": {"numpy": "1"}}
    return Identity(run=run, config={**base, **config}, changeable={"play.concurrency"}, growing={"n"}, noted={"versions"})


def begun(folder: Path) -> None:
    with claim(folder, identity()) as held:
        assert not held.resumed
        assert not held.replaced
        (folder / "trajectories.jsonl").write_text("{}\n")


def kept(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    return config


def test_the_same_run_is_resumed(tmp_path: Path) -> None:
    begun(tmp_path)
    before = (tmp_path / CONFIG).read_bytes()
    with claim(tmp_path, identity()) as held:
        assert held.resumed
    assert (tmp_path / CONFIG).read_bytes() == before


def test_what_may_change_is_taken_over_and_notes_stay(tmp_path: Path) -> None:
    begun(tmp_path)
    with claim(tmp_path, identity(play={"seed": 0, "concurrency": 9}, n=12, versions={"numpy": "2", "python": "3"})) as held:
        assert held.resumed
    assert kept(tmp_path)["play"]["concurrency"] == 9
    assert kept(tmp_path)["n"] == 12
    assert kept(tmp_path)["versions"] == {"numpy": "1"}


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"policy": "oracle"}, 'policy was "random" and is now "oracle"'),
        ({"play": {"seed": 1, "concurrency": 4}}, "play.seed was 0 and is now 1"),
        ({"n": 9}, "n was 10 and is now 9"),
        ({"tries": 2}, "tries was none and is now 2"),
    ],
)
def test_another_run_is_refused_in_one_sentence(tmp_path: Path, config: dict[str, Any], told: str) -> None:
    begun(tmp_path)
    before = (tmp_path / CONFIG).read_bytes()
    with pytest.raises(UsageError) as refused, claim(tmp_path, identity(**config)):
        pass
    assert f"{tmp_path} holds another evaluation: {told}. Repeat the command" in str(refused.value)
    assert "choose another folder (--out)" in str(refused.value)
    assert (tmp_path / CONFIG).read_bytes() == before


def test_a_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(UsageError, match=r"another kind \(evaluation, not rollout\)"), claim(tmp_path, identity("rollout")):
        pass


def test_a_folder_without_results_is_free_for_another_run(tmp_path: Path) -> None:
    with claim(tmp_path, identity()):
        (tmp_path / "trajectories.jsonl").touch()
    with claim(tmp_path, identity("rollout", policy="oracle")) as held:
        assert held.replaced
        assert not held.resumed
    assert kept(tmp_path)["run"] == "rollout"
    (tmp_path / CONFIG).write_text("{torn")
    with claim(tmp_path, identity()) as held:
        assert held.replaced


def test_results_that_no_config_explains_are_refused(tmp_path: Path) -> None:
    (tmp_path / "trajectories.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"results but no config\.json"), claim(tmp_path, identity()):
        pass
    (tmp_path / CONFIG).write_text("{torn")
    with pytest.raises(UsageError, match="is damaged"), claim(tmp_path, identity()):
        pass


def test_many_differences_and_long_values_stay_one_sentence(tmp_path: Path) -> None:
    begun(tmp_path)
    # 80 characters of a value are shown, its quotation marks included.
    wrong = identity(policy="x" * 79, play={"seed": "y" * 78, "concurrency": 4}, u=1, v=2, w=3)
    with pytest.raises(UsageError, match="u was none and is now 1, and 2 more differences") as refused, claim(tmp_path, wrong):
        pass
    assert f'is now "{"x" * 78}…, ' in str(refused.value)
    assert f'is now "{"y" * 78}", ' in str(refused.value)


@pytest.mark.parametrize("name", [CONFIG, "trajectories.jsonl", "report.json", "pictures"])
def test_a_name_that_is_taken_by_something_else_is_refused_before_the_work_begins(tmp_path: Path, name: str) -> None:
    run = Identity(run="evaluation", config={}, others={"report.json"}, folders={"pictures"})
    with claim(tmp_path, run):
        (tmp_path / "pictures").mkdir()
        (tmp_path / "report.json").touch()
    path = tmp_path / name
    if path.is_dir():
        path.rmdir()
        path.touch()
    else:
        path.unlink(missing_ok=True)
        path.mkdir()
    with pytest.raises(UsageError, match=rf"{name} is not a (file|folder): rename it or remove it"), claim(tmp_path, run):
        pass
    assert not (tmp_path / "trajectories.jsonl").is_file()


@pytest.mark.parametrize(
    ("id", "named"),
    [("data:rows.jsonl?grader=own:grade", "rows.jsonl has changed"), ("qa:HotpotQA", "the data of qa:HotpotQA has changed")],
)
def test_rows_that_have_changed_are_named_by_their_file_or_their_environment(tmp_path: Path, id: str, named: str) -> None:
    with claim(tmp_path, identity(data={id: "a hash"})):
        (tmp_path / "trajectories.jsonl").write_text("{}\n")
    with pytest.raises(UsageError) as refused, claim(tmp_path, identity(data={id: "another hash"})):
        pass
    assert str(refused.value).startswith(named)
    assert "hash" not in str(refused.value)
