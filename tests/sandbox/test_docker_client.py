"""What is known about Docker without a daemon: sentences about what is missing, and the words that start a container."""

from pathlib import Path

import pytest

from palestra.errors import MissingExtra, Unsupported
from palestra.sandbox.contract import MIB
from palestra.sandbox.docker_client import require_daemon
from palestra.sandbox.docker_shell import ContainerSettings, run_words
from palestra.sandbox.shell_profile import SHELL_LIMITS


def test_without_a_client_or_a_daemon_one_sentence_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match=r"docker is not on the PATH.*docker\.io"):
        require_daemon()
    (tmp_path / "docker").write_text("#!/bin/sh\necho Cannot connect to the socket. >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(MissingExtra, match=r"no Docker daemon answers.*Cannot connect.*DOCKER_HOST"):
        require_daemon()
    (tmp_path / "docker").write_text('#!/bin/sh\necho \'{"OSType": "windows"}\'\n')
    with pytest.raises(Unsupported, match="containers of windows"):
        require_daemon()


def test_the_words_build_the_wall() -> None:
    line = " ".join(run_words("name", ContainerSettings(limits=SHELL_LIMITS, cpus=1.0)))
    for wall in ("--rm", "--pull never", "--network none", "--cpus 1 ", "--pids-limit 64", f"--memory {1024 * MIB}"):
        assert wall in line
    open_line = " ".join(
        run_words("name", ContainerSettings(limits=SHELL_LIMITS, cpus=0.5, network=True, variables={"A": "b c"}))
    )
    assert "--network" not in open_line
    assert open_line.endswith("--env A=b c")
