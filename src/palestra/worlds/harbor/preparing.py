"""Prepare tasks of class 2 with docker or podman: build the image once with a network, and unpack it into the cache.

This runs the instructions of the folder outside of the box. A command does it only with ``--trust``.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from palestra.errors import EnvError, MissingExtra
from palestra.sandbox.roots import RootCache
from palestra.worlds.harbor.schema import Environment
from palestra.worlds.harbor.task import identity_of

__all__ = ["container_program", "prepare"]


def container_program() -> str:
    """Return the path of docker or podman.

    Raises:
        MissingExtra: Neither is installed.
    """
    program = shutil.which("docker") or shutil.which("podman")
    if program is None:
        raise MissingExtra("preparing a task needs docker or podman: apt-get install podman")
    return program


def prepare(cache: RootCache, context: Path, environment: Environment, program: str) -> str:
    """Build or pull the image of an environment and unpack it under the environment's identity. Return the key of its root."""
    identity = identity_of(context, environment)
    image = environment.docker_image or f"palestra-{identity[:16]}"
    if environment.docker_image:
        _run(program, "pull", image, seconds=environment.build_timeout_sec)
    else:
        _run(program, "build", "-t", image, str(context), seconds=environment.build_timeout_sec)
    cache.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.folder, prefix=".image-") as folder:
        archive = Path(folder, "image.tar")
        _run(program, "save", "-o", str(archive), image, seconds=600.0)
        return cache.add_archive(identity, archive)


def _run(program: str, *words: str, seconds: float) -> None:
    try:
        done = subprocess.run([program, *words], capture_output=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise EnvError(f"{Path(program).name} {words[0]} took longer than {seconds:g} s") from None
    if done.returncode:
        text = (done.stdout + done.stderr).decode(errors="replace").strip()[-500:]
        raise EnvError(f"{Path(program).name} {words[0]} failed: {text}")
