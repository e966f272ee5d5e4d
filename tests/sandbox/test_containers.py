"""Docker with a daemon that the test starts or, if there is none, with a stand-in for its client.

The stand-in runs the container's command here, which shows that the provider keeps its side of the contract.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.docker_daemon import IMAGE, docker_daemon

from palestra.errors import InfrastructureError, MissingExtra, Unsupported
from palestra.sandbox import Limits, Program
from palestra.sandbox.containers import Docker, Runsc
from palestra.testing.sandboxes import CHECKS, SandboxCheck

STAND_IN = """#!/bin/sh
here={folder}
if [ "$1" = kill ]; then kill -9 -"$(cat $here/$2)"; exit 0; fi
while [ "$1" != stand-in-image ]; do
  if [ "$1" = --name ]; then name=$2; fi
  shift
done
shift
mkdir "$here/$name.work"
cd "$here/$name.work"
ulimit -v 1048576
exec /usr/bin/python3 -c 'import os, sys
if os.getpid() != os.getpgid(0): os.setsid()
open(sys.argv[1], "w").write(str(os.getpid()))
os.execv("/usr/bin/python3", ["python3"] + sys.argv[3:])' "$here/$name" "$@"
"""


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    program = tmp_path / "docker"
    program.write_text(STAND_IN.format(folder=tmp_path))
    program.chmod(0o755)
    return Docker("stand-in-image", program=str(program))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_provider_keeps_the_contract(check: SandboxCheck, docker: Docker) -> None:
    await check(docker)


def test_the_command_builds_the_wall(docker: Docker) -> None:
    line = " ".join(docker.command("box"))
    for wall in ("--network none", "--read-only", "--cap-drop ALL", "no-new-privileges", "--user 65534", "--pids-limit 48"):
        assert wall in line
    assert f"--memory {Limits().total_memory}" in line


async def test_a_missing_program_or_feature_is_reported(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unsupported):
        await docker.open_tests(b"F", [])
    (tmp_path / "docker").write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    with pytest.raises(InfrastructureError, match="no daemon"):
        await docker.run(Program(code="1"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="gvisor"):
        Runsc()
    (tmp_path / "runsc").write_text("")
    (tmp_path / "runsc").chmod(0o755)
    assert "--network=none" in Runsc().command("box")


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with docker_daemon() as address:
        yield address


@pytest.mark.slow
@pytest.mark.alone
async def test_a_real_daemon_keeps_the_contract(daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", daemon)
    for check in CHECKS:
        await check(Docker(IMAGE))
    deadline = time.monotonic() + 20
    while left := subprocess.run(["docker", "ps", "--all", "--quiet"], capture_output=True, check=True).stdout:
        assert time.monotonic() < deadline, left  # the daemon removes containers after it has told of their end
