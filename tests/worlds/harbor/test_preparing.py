"""Tasks of class 2, built by a real Docker daemon, then played in the box."""

from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.sandbox.docker_daemon import IMAGE, docker_daemon
from tests.worlds.harbor.folders import write

from palestra.cli.app import run_command
from palestra.errors import MissingExtra
from palestra.worlds.harbor.env import Harbor, harbor_cache
from palestra.worlds.harbor.preparing import container_program

STAGES = f"FROM {IMAGE} AS first\nFROM {IMAGE}\nENV WORD=hello\nWORKDIR /app\nCOPY seed.txt /app/seed.txt\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_docker_prepares_what_a_box_cannot_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    folder = write(tmp_path / "task", {"environment/Dockerfile": STAGES, "environment/seed.txt": "seed\n"})
    assert run_command(["harbor", "build", str(folder)]) == 1
    assert "class 2: Dockerfile line 2: a second FROM" in capsys.readouterr().out
    with docker_daemon() as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        assert run_command(["harbor", "build", str(folder), "--trust"]) == 0
    task = Harbor(str(folder))._folders[0]
    (name,) = harbor_cache().images()
    root = harbor_cache().find(name)
    assert root is not None
    assert (task, root.variables["WORD"], root.workdir) == (folder, "hello", "/app")
    assert Path(root.path, "app/seed.txt").read_text() == "seed\n"


def test_without_docker_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingExtra, match="apt-get install podman"):
        container_program()
