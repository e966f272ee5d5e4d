"""The Dockerfile over its base image: variables and working folder of the base, and words that are no here-document."""

import pytest

from palestra.worlds.harbor.dockerfile import DEFAULT_PATH, Copy, Folder, Run, read_dockerfile


def test_path_means_that_of_the_base_image() -> None:
    text = 'FROM a\nENV PATH="/opt/venv/bin:$PATH"\nRUN true\n'
    assert read_dockerfile(text).variables == {"PATH": f"/opt/venv/bin:{DEFAULT_PATH}"}
    recipe = read_dockerfile(text, {"PATH": "/base/bin", "LANG": "C"})
    assert recipe.variables == {"PATH": "/opt/venv/bin:/base/bin"}
    (run,) = recipe.steps
    assert isinstance(run, Run)
    assert dict(run.variables) == {"PATH": "/opt/venv/bin:/base/bin", "LANG": "C"}


def test_variables_of_the_base_image_count_before_arguments_but_not_in_from() -> None:
    recipe = read_dockerfile("ARG NAME=a\nFROM ${NAME}\nENV SEEN=$NAME\n", {"NAME": "b"})
    assert (recipe.image, recipe.variables) == ("a", {"SEEN": "b"})


def test_relative_paths_begin_at_the_working_folder_of_the_base_image() -> None:
    recipe = read_dockerfile("FROM a\nCOPY d .\nWORKDIR sub\n", workdir="/app")
    assert recipe.steps == [Copy(2, ("d",), "/app/"), Folder(3, "/app/sub")]
    assert recipe.workdir == "/app/sub"
    assert read_dockerfile("FROM a\nWORKDIR sub\n").workdir == "/sub"


@pytest.mark.parametrize(
    "command", ["echo $((1<<3))", "echo $(( 1 << 3 ))", "echo $(( 1 <<3 ))", "cat <<<hello", 'echo "a <<b c"']
)
def test_what_is_no_here_document_takes_no_line(command: str) -> None:
    recipe = read_dockerfile(f"FROM a\nRUN {command}\nCOPY x /y\nENV A=1\n")
    assert (recipe.refused, recipe.variables) == ([], {"A": "1"})
    run, copy = recipe.steps
    assert isinstance(run, Run)
    assert (run.command, copy) == (command, Copy(3, ("x",), "/y"))


def test_here_documents_end_where_the_shell_ends_them() -> None:
    text = "FROM a\nRUN cat <<-EOF > /x\n\tone\n\tEOF\nRUN <<'END'\n\n END\nEND\nENV A=1\n"
    recipe = read_dockerfile(text)
    assert [step.command for step in recipe.steps if isinstance(step, Run)] == ["cat <<-EOF > /x\none\nEOF\n", "\n END"]
    assert (recipe.refused, recipe.variables) == ([], {"A": "1"})


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("RUN cat <<EOF", "line 2: the here-document has no end: no line is EOF"),
        ("RUN cat <<A <<B\na\nA\nb\nB", "line 2: several here-documents"),
        ("RUN <<EOF\n#!/usr/bin/env python3\nEOF", "line 2: a here-document with an interpreter of its own"),
        ("COPY <<EOF /x\na\nEOF", "line 2: COPY of a here-document"),
        ("COPY [1, 2]", "line 2: COPY: the list has items that are not texts"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_line(lines: str, sentence: str) -> None:
    assert sentence in read_dockerfile(f"FROM a\n{lines}\nENV A=1\n").refused[0]
