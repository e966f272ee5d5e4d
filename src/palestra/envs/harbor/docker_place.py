"""Play tasks of class 3 in Docker, where a box cannot have what they need and the user has asked for it.

Without ``trust`` nothing is fetched: the daemon must have the image, or the base image of a Dockerfile that Palestra can read,
and the instructions run without network. With ``trust``, docker may pull images, instructions may use a network, and so may the
container if the task says ``public``.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from palestra.envs.harbor.building import Built
from palestra.envs.harbor.classes import is_root, recipe_of
from palestra.envs.harbor.health import wait_until_healthy
from palestra.envs.harbor.places import Place, limits_of
from palestra.envs.harbor.schema import Environment
from palestra.envs.harbor.task import HarborTask, identity_of
from palestra.errors import EnvError, MissingData, Unsupported
from palestra.sandbox.docker_client import Daemon, docker, require_daemon
from palestra.sandbox.docker_shell import ContainerSettings, open_container
from palestra.sandbox.shell_session import ShellSession

__all__ = ["DockerPlace", "has_network"]

_SYNTAX = re.compile(r"^\s*#\s*syntax\s*=", re.MULTILINE | re.IGNORECASE)
_DAY = 86_400.0


class DockerPlace(Place):
    """Containers of a Docker daemon.

    Args:
        trust: Let docker fetch images and use a network, as far as the task says so.
    """

    name = "docker"

    def __init__(self, trust: bool) -> None:
        self._trust = trust
        self._daemon: Daemon | None = None

    async def build(self, task: HarborTask, context: Path, environment: Environment) -> Built:
        return await asyncio.to_thread(self._build, task, context, environment)

    def _build(self, task: HarborTask, context: Path, environment: Environment) -> Built:
        self._daemon = self._daemon or require_daemon()
        if environment.cpus and environment.cpus > self._daemon.cpus:
            raise Unsupported(f"{task.name} asks for {environment.cpus:g} CPUs, and the daemon has {self._daemon.cpus}")
        image = environment.docker_image or f"palestra-harbor:{identity_of(context, environment)[:32]}"
        config = _config_of(image)
        if config is None:
            self._make(task, image, context, environment)
            config = _config_of(image) or {}
        user = config.get("User") or ""
        if config.get("Entrypoint") and not is_root(user):
            raise Unsupported(f"{task.name}: the image starts services as {user}, and a container here starts them as root")
        return Built(
            root="",
            layer=Path(),
            variables=dict(word.split("=", 1) for word in config.get("Env") or () if "=" in word),
            workdir=f"/{(environment.workdir or config.get('WorkingDir') or '').strip('/')}",
            users=True,
            user="" if is_root(user) else user,
            image=image,
            network=self._trust and has_network(task, environment),
        )

    def _make(self, task: HarborTask, image: str, context: Path, environment: Environment) -> None:
        """Build or pull ``image``."""
        words = ["pull", "--quiet", image]
        if not environment.docker_image:
            self._require_offline(task, context, environment)
            network = [] if self._trust else ["--network", "none"]
            words = ["build", "--quiet", *network, "--tag", image, str(context)]
        elif not self._trust:
            raise _missing(task, image)
        try:
            docker(*words, seconds=environment.build_timeout_sec)
        except OSError as error:
            raise EnvError(f"docker {words[0]} failed: {error.strerror}") from None

    def _require_offline(self, task: HarborTask, context: Path, environment: Environment) -> None:
        """Raise an error if docker would fetch something for a build, and the folder is not trusted."""
        recipe = recipe_of(context, environment)
        if self._trust:
            return
        if recipe.refused or _SYNTAX.search((context / "Dockerfile").read_text(encoding="utf-8")):
            sentence = "; ".join(recipe.refused) or "Dockerfile: # syntax names another image"
            raise Unsupported(f"{task.name}: {sentence}: pass trust=True to let docker build it")
        if _config_of(recipe.image) is None:
            raise _missing(task, recipe.image)

    def has(self, built: Built) -> bool:
        """Return true: an image that was removed shows when the container starts."""
        return True

    async def open(self, built: Built, environment: Environment, variables: Mapping[str, str]) -> ShellSession:
        assert self._daemon is not None
        limits = limits_of(environment)
        settings = ContainerSettings(
            limits=replace(limits, total_memory=limits.total_memory - limits.disk_bytes),  # its files are not in memory
            cpus=environment.cpus or 1.0,
            network=built.network,
            variables=variables,
            session_seconds=_DAY,
        )
        shell = await open_container(built.image, settings)
        try:
            if environment.healthcheck is not None:
                await wait_until_healthy(shell, environment.healthcheck)
            await shell.begin_episode()
        except BaseException:
            await shell.close()
            raise
        return shell


def has_network(task: HarborTask, environment: Environment) -> bool:
    """Return whether everything that runs in the container of ``environment`` may use a network."""
    if environment is task.config.environment:
        modes = [step.agent.network_mode for step in task.steps]
        modes += [step.verifier.network_mode for step in task.steps if not step.separate]
    else:
        modes = [step.verifier.network_mode for step in task.steps if step.separate]
    return environment.network == "public" and all(mode in (None, "public") for mode in modes)


def _config_of(image: str) -> dict[str, Any] | None:
    """Return the configuration of an image that the daemon has, or ``None``."""
    try:
        found: dict[str, Any] = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", image))
    except OSError:
        return None
    return found


def _missing(task: HarborTask, image: str) -> MissingData:
    return MissingData(f"{task.name}: the Docker daemon has no image {image}: docker pull it, or pass trust=True")
