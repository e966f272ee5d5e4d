"""Reading Harbor task folders: every key, every fault by file and key, the class of each task."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worlds.harbor.folders import BROKEN, CLASSES, EVERY_KEY, IMAGE, SOUND, STEPS, write

from palestra.errors import SchemaError, UsageError
from palestra.sandbox.layers import files_of
from palestra.worlds.harbor.classes import classify
from palestra.worlds.harbor.dockerfile import fetches, read_dockerfile
from palestra.worlds.harbor.reading import read_task


@pytest.mark.parametrize("name", SOUND)
def test_sound_folders_are_read_and_play_in_the_box(name: str, tmp_path: Path) -> None:
    case = SOUND[name]
    task = read_task(write(tmp_path / name, case.files, case.toml))
    placement = classify(task, {IMAGE})
    assert (placement.kind, placement.because, task.warnings) == (1, "", ())
    assert all(step.instruction.strip() and "canary" not in step.instruction for step in task.steps)


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_a_sentence_with_file_and_key(name: str, tmp_path: Path) -> None:
    case = BROKEN[name]
    write(tmp_path / name, case.files, case.toml)
    with pytest.raises(SchemaError) as caught:
        read_task(tmp_path / name)
    assert all(line.startswith(f"{name}: ") for line in str(caught.value).splitlines())
    assert case.says in str(caught.value)


@pytest.mark.parametrize("name", CLASSES)
def test_the_class_has_a_reason(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.worlds.harbor.classes.users_missing", lambda: "a box has one user here")
    case = CLASSES[name]
    placement = classify(read_task(write(tmp_path / name, case.files, case.toml)), {IMAGE})
    assert placement.kind == case.kind, placement
    assert case.says in placement.because


def test_every_value_arrives(tmp_path: Path) -> None:
    task = read_task(write(tmp_path, toml=EVERY_KEY))
    environment, (step,) = task.config.environment, task.steps
    assert (task.name, task.config.metadata["anything"]) == ("palestra/every-key", {"goes": [1, 2]})
    assert (environment.memory_in_mb, environment.storage_in_mb, environment.network) == (256, 64, "no-network")
    assert (environment.os, environment.workdir, environment.build_timeout_sec) == ("linux", "/app", 60.0)
    assert (step.agent.timeout_sec, step.verifier.timeout_sec, step.verifier_env) == (20.0, 20.0, {"EXPECTED": "hello"})
    assert [one.source for one in step.artifacts] == ["/app/answer.txt", "/app/out"]


def test_a_step_takes_what_it_leaves_out_from_the_task(tmp_path: Path) -> None:
    toml = "[agent]\nuser = 'root'\n[verifier]\nenvironment_mode = 'separate'\nenv = {A = '1'}\ncollect = [{command = 'x'}]\n"
    write(tmp_path, SOUND["steps-mean"].files, STEPS.replace("STRATEGY", "mean").replace("[[", f"{toml}[[", 1))
    one, two = read_task(tmp_path).steps
    assert (one.agent.user, one.agent.timeout_sec, two.agent.timeout_sec) == ("root", 10.0, None)
    assert (one.separate, two.separate, two.verifier_env) == (True, True, {"A": "1", "TWO": "2"})
    assert [hook.command for hook in one.verifier.collect] == ["x"]
    assert (one.workdir, two.workdir) == (None, tmp_path / "steps/two/workdir")


def test_unknown_keys_are_warnings(tmp_path: Path) -> None:
    toml = "typo = 1\n[environment]\ncpu = 1\n[[steps]]\nname = 'one'\nverifier.timeout = 3\n"
    write(tmp_path, {"steps/one/instruction.md": "Do.\n"}, toml)
    found = [sentence.split(": ")[1] for sentence in read_task(tmp_path).warnings]
    assert found == ["typo", "environment.cpu", "steps[0].verifier.timeout"]


def test_a_step_may_link_to_tests_of_the_task_and_what_copies_them_follows_no_link(tmp_path: Path) -> None:
    write(tmp_path, {"steps/one/instruction.md": "Do.\n"}, "[[steps]]\nname = 'one'\n")
    (tmp_path / "steps" / "one" / "tests").symlink_to("../../tests")
    (one,) = read_task(tmp_path).steps
    assert one.tests == (tmp_path / "tests",)
    assert [file.path for file in files_of(one.tests[0], "tests")] == ["tests/test.sh"]
    with pytest.raises(UsageError, match="tests is a link, and is not followed"):
        files_of(tmp_path / "steps" / "one" / "tests", "tests")


def test_a_link_out_of_the_folder_is_a_fault(tmp_path: Path) -> None:
    folder = write(tmp_path / "task")
    (tmp_path / "secret").write_text("x")
    os.symlink("../../secret", folder / "tests" / "data")
    with pytest.raises(SchemaError, match="tests/data is a link that leads out"):
        read_task(folder)


def test_the_identity_is_that_of_the_environment(tmp_path: Path) -> None:
    one, same, other = (write(tmp_path / name) for name in "abc")
    (same / "instruction.md").write_text("Something else.")
    (other / "environment/more.txt").write_text("x")
    tasks = [read_task(folder) for folder in (one, same, other)]
    assert tasks[0].identity == tasks[1].identity != tasks[2].identity
    assert len({task.digest for task in tasks}) == 3


def test_a_huge_file_is_never_read(tmp_path: Path) -> None:
    task = read_task(write(tmp_path))
    with (tmp_path / "environment/data").open("wb") as file:
        file.truncate(10**12)  # sparse: hashing it would take an hour
    placement = classify(task, {IMAGE})
    assert (placement.kind, placement.because) == (3, "the folder has 953674 MiB; a box takes at most 1024")


@given(
    st.text(max_size=200) | st.lists(st.sampled_from(["FROM a", "RUN [", "COPY", "ENV A", 'ENV "', "ADD [1]", "\\", "RUN <<E"]))
)
def test_no_text_breaks_the_reader(text: str | list[str]) -> None:
    recipe = read_dockerfile(text if isinstance(text, str) else "\n".join(text))
    assert recipe.image or recipe.refused


@pytest.mark.parametrize(
    ("script", "tool"),
    [
        ("apt-get  update", "apt-get update"),
        ("cd /x && apt-get -y install \\\n git", "apt-get -y install"),
        ("uvx pytest", "uvx"),
        ("# curl", ""),
        ("curl -s http://localhost:8000", ""),
        ("python -m pytest", ""),
        ("pip install --no-index -f wheels x", ""),
        ("python3 -m pip install x", "python3 -m pip install"),
    ],
)
def test_commands_that_need_a_network(script: str, tool: str) -> None:
    assert fetches(script) == tool
