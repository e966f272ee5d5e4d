"""A Docker daemon for the tests, and an image made of this machine's Python: no registry is needed."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IMAGE = "palestra-python"
_PROGRAMS = ("/usr/bin/python3", "/bin/sh", "/bin/cat", "/bin/sleep")


@contextlib.contextmanager
def docker_daemon() -> Iterator[str]:
    """The address of a running daemon that knows ``IMAGE``. Skips where none can be started, and says why."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("a Docker daemon of one's own needs root and dockerd: apt-get install docker.io")
    # Short, because the path of a socket has to be.
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as folder:
        home = Path(folder)
        address = f"unix://{home}/docker.sock"
        command = ["dockerd", "--data-root", f"{home}/data", "--exec-root", f"{home}/exec", "--host", address]
        command += ["--pidfile", f"{home}/pid", "--iptables=false", "--bridge=none"]
        with (home / "log").open("wb") as log:
            daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            _until_it_answers(daemon, address, home / "log")
            _import_image(address, home / "root")
            yield address
        finally:
            daemon.terminate()
            daemon.wait(60)


def _until_it_answers(daemon: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(["docker", "-H", address, "version"], check=False, capture_output=True).returncode:
        if daemon.poll() is not None:
            pytest.skip(f"no Docker daemon can run here: {log.read_text()[-300:]}")
        assert time.monotonic() < deadline, log.read_text()[-1000:]
        time.sleep(0.1)


def _import_image(address: str, root: Path) -> None:
    """An image of an interpreter, a shell, and the libraries they load."""
    version = subprocess.run(["/usr/bin/python3", "-c", _LIBRARY], capture_output=True, text=True, check=True).stdout.strip()
    files = [*_PROGRAMS, *map(str, Path(version, "lib-dynload").glob("*.so"))]
    listed = subprocess.run(["ldd", *files], check=False, capture_output=True, text=True).stdout
    loaded = {word for word in listed.split() if word.startswith("/") and not word.endswith(":")}
    root.mkdir()
    copy = ["cp", "--parents", "--dereference"]
    subprocess.run([*copy, *_PROGRAMS, *loaded, root], check=True)
    subprocess.run([*copy, "--recursive", version, root], check=True)
    subprocess.run(["chmod", "-R", "a+rX", root], check=True)
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as archive:
        imported = ["docker", "-H", address, "import", "-", IMAGE]
        subprocess.run(imported, stdin=archive.stdout, stdout=subprocess.DEVNULL, check=True)


_LIBRARY = "import os; print(os.path.dirname(os.__file__))"
