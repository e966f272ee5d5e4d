"""Which tasks can play in a box, and why not the others.

1 ``box``       plays here: the image has a root file system, and every step of the Dockerfile works offline.
2 ``prepared``  needs a root file system that is built once with a network, by docker or podman; then it plays in the box.
3 ``docker``    needs what a box does not have: several services, an egress list, health checks, GPUs; on some machines, users.

The highest class of any reason counts. A class is a statement about the folder; nothing is executed to find it.
"""

import os
import posixpath
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from palestra.sandbox.roots import HOST, Root
from palestra.sandbox.users import users_missing
from palestra.worlds.harbor.dockerfile import ImageRecipe, Run, fetches, read_dockerfile
from palestra.worlds.harbor.schema import Environment
from palestra.worlds.harbor.task import HarborStep, HarborTask, identity_of

__all__ = [
    "HOST",
    "MOST_MEGABYTES",
    "Placement",
    "Reason",
    "classify",
    "environment_reasons",
    "images_of",
    "is_root",
    "recipe_of",
    "relative_entry",
    "users_of",
]

MOST_MEGABYTES = 1024
"""The largest task folder that is hashed and built in a box: twice the disk of the largest box."""
_UNKNOWN = Root("", "")
_NAMES = {1: "box", 2: "prepared", 3: "docker"}
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_PRIVILEGED = re.compile(r"\b(systemctl|systemd|mount\s+-t|modprobe|iptables|dockerd|insmod|sysctl\s+-w)\b")
_ROOT = ("", "root", "0", "0:0", "root:root")


Find = Callable[[str], Root | None]
"""Returns the root file system that a name of an image, or the identity of an environment, has."""


def _no_root(name: str) -> None:
    """Find nothing, as where every image is played over the host's ``/usr``."""


class Reason(NamedTuple):
    """Why a task is not of a lower class."""

    kind: int
    sentence: str


@dataclass(frozen=True)
class Placement:
    """Where a task can be played."""

    reasons: tuple[Reason, ...]
    notes: tuple[str, ...] = ()
    """Differences to Harbor that do not stop the task."""

    @property
    def kind(self) -> int:
        """1, 2 or 3."""
        return max((reason.kind for reason in self.reasons), default=1)

    @property
    def name(self) -> str:
        """``box``, ``prepared`` or ``docker``."""
        return _NAMES[self.kind]

    @property
    def because(self) -> str:
        """The reasons for this class, in one line."""
        return "; ".join(reason.sentence for reason in self.reasons if reason.kind == self.kind)


def classify(task: HarborTask, images: Container[str] = (), find: Find = _no_root) -> Placement:
    """Return the class of ``task``.

    Args:
        task: A task that was read.
        images: Names of images, and identities of environments, that have a root file system.
        find: Returns those that were unpacked, such as ``RootCache.find``: files of named users may have lost their owners.
    """
    if task.megabytes > MOST_MEGABYTES:  # before a file is read
        return Placement((Reason(3, f"the folder has {task.megabytes:.0f} MiB; a box takes at most {MOST_MEGABYTES}"),))
    reasons = list(_of_environment(task.config.environment, "environment"))
    for context, table in task.environments.values():
        reasons += environment_reasons(context, table, images, find)
    for step in task.steps:
        reasons += [*_of_step(step), *_of_users(task, step, find)]
    for server in task.config.environment.mcp_servers:
        reasons.append(Reason(3, f"environment.mcp_servers: the box starts no server {server.name}"))
    return Placement(tuple(dict.fromkeys(reasons)), tuple(_notes(task)))


def images_of(task: HarborTask) -> set[str]:
    """Return the names of all images from which the environments of ``task`` are built."""
    return {recipe_of(context, table).image for context, table in task.contexts}


def recipe_of(context: Path, environment: Environment, root: Root = _UNKNOWN) -> ImageRecipe:
    """Return what the environment is built from: the prepared image if there is one, else the Dockerfile over ``root``.

    If ``root`` was found by the identity of the environment, docker has built it, and its image has all files and variables.
    """
    if environment.docker_image:
        return ImageRecipe(image=environment.docker_image, workdir=root.workdir or "/", user=root.user)
    try:
        text = (context / "Dockerfile").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return ImageRecipe(refused=[f"the Dockerfile cannot be read: {error}"])
    recipe = read_dockerfile(text, root.variables, root.workdir, root.user)
    if root.image and root.image != recipe.image:
        return ImageRecipe(image=recipe.image, workdir=root.workdir or "/", user=root.user)
    return recipe


def users_of(recipe: ImageRecipe) -> list[str]:
    """Return the users other than root as which instructions of the Dockerfile, or the agent, run."""
    users = {recipe.user, *(step.user for step in recipe.steps if isinstance(step, Run))}
    return sorted(user for user in users if not is_root(user))


def is_root(user: str | int | None) -> bool:
    """Return whether a task that names ``user`` means root, or names none."""
    return user is None or str(user) in _ROOT


def relative_entry(variables: Mapping[str, str]) -> str:
    """Return a sentence about an entry of ``PATH`` that means a folder of the agent, or an empty text."""
    bad = [entry for entry in variables.get("PATH", "/").split(":") if not entry.startswith("/")]
    return f'PATH has the entry "{bad[0]}": the verifier would run programs of the agent\'s working folder' if bad else ""


def _of_environment(table: Environment, prefix: str) -> Iterator[Reason]:
    if table.os != "linux":
        yield Reason(3, f'{prefix}.os is "{table.os}"')
    if table.gpus or table.tpu:
        yield Reason(3, f"{prefix}: the task needs a GPU or TPU")
    if table.network == "allowlist":
        yield Reason(3, f"{prefix}.network_mode: a box has no list of allowed hosts")
    if table.healthcheck is not None:
        yield Reason(3, f"{prefix}.healthcheck: the image starts services of its own")


def environment_reasons(context: Path, table: Environment, images: Container[str], find: Find = _no_root) -> list[Reason]:
    """Return why a box cannot have the environment of an agent or a verifier. If docker has built it, only its users count."""
    reasons = [Reason(3, f"{context.name}/{name}: several services") for name in _COMPOSE if (context / name).exists()]
    identity, recipe = identity_of(context, table), recipe_of(context, table)
    if identity not in images:
        reasons += _of_recipe(context, recipe, images)
    root = find(identity) or find(recipe.image)
    for user in users_of(recipe_of(context, table, root) if root else recipe):
        reasons += _of_user(f"USER {user}", user, root)
    return reasons


def _of_user(prefix: str, user: str | int, root: Root | None) -> Iterator[Reason]:
    if sentence := users_missing() or (root.lost_owner(str(user)) if root else ""):
        yield Reason(3, f"{prefix}: {sentence}")


def _of_users(task: HarborTask, step: HarborStep, find: Find) -> Iterator[Reason]:
    prefix = f"steps.{step.name}." if step.name else ""
    agent = (task.environment, task.config.environment)
    verifier = (step.verifier_context, step.verifier_environment) if step.separate else agent
    for name, user, environment in (("agent", step.agent.user, agent), ("verifier", step.verifier.user, verifier)):
        if user is not None and not is_root(user):
            root = find(identity_of(*environment)) or find(recipe_of(*environment).image)
            yield from _of_user(f"{prefix}{name}.user is {user}", user, root)


def _of_recipe(context: Path, recipe: ImageRecipe, images: Container[str]) -> Iterator[Reason]:
    for sentence in recipe.refused:
        yield Reason(2, sentence)
    if recipe.image and recipe.image not in images:
        yield Reason(2, f"no root file system for the image {recipe.image}")
    if (context / ".dockerignore").exists():
        yield Reason(2, ".dockerignore is not read by the box")
    if sentence := relative_entry(recipe.variables):
        yield Reason(3, f"Dockerfile: {sentence}")
    for step in recipe.steps:
        if isinstance(step, Run):
            yield from _of_run(step)


def _of_run(step: Run) -> Iterator[Reason]:
    if tool := fetches(step.command):
        yield Reason(2, f"Dockerfile line {step.line}: RUN {tool} needs a network")
    if match := _PRIVILEGED.search(step.command):
        yield Reason(3, f"Dockerfile line {step.line}: {match[0]} needs privileges")


def _of_step(step: HarborStep) -> Iterator[Reason]:
    prefix = f"steps.{step.name}." if step.name else ""
    for name, table in (("agent", step.agent), ("verifier", step.verifier)):
        if table.network_mode == "allowlist":
            yield Reason(3, f"{prefix}{name}.network_mode: a box has no list of allowed hosts")
    if step.healthcheck is not None:
        yield Reason(3, f"{prefix}healthcheck: the task starts services of its own")
    services = {entry.service for entry in step.artifacts} | {entry.service for entry in step.verifier.collect}
    if services - {None, "main"}:
        yield Reason(3, f"{prefix}artifacts: another service")
    if step.separate:
        yield from _of_environment(step.verifier_environment, f"{prefix}verifier.environment")
        if any(not posixpath.normpath(artifact.source).strip("/") for artifact in step.artifacts):
            yield Reason(3, f"{prefix}artifacts: the box copies no whole file system to the verifier; name a folder")
    for tests in step.tests:
        script = tests / "test.sh"
        if script.is_file() and (tool := fetches(script.read_text(errors="replace"))):
            yield Reason(2, f"{prefix}tests/test.sh runs {tool}: the verifier cannot grade without a network")


def _notes(task: HarborTask) -> Iterator[str]:
    if task.config.environment.network == "public":
        yield "environment.network_mode is public; the box has no network"
    for step in task.steps:
        if step.solution and (tool := fetches((step.solution / "solve.sh").read_text(errors="replace"))):
            yield f"solution/solve.sh runs {tool}, which needs a network"
    if task.config.environment.cpus:
        yield "environment.cpus is not enforced"
    if any(not is_root(step.agent.user) for step in task.steps):
        yield "agent.user: processes of the agent end before the verifier runs"
    if task.megabytes > 64:
        yield f"the folder has {task.megabytes:.0f} MiB"
    if any(os.access(path / "test.sh", os.F_OK) and not step.separate for step in task.steps for path in step.tests):
        yield "the verifier shares the agent's box: the agent could replace programs that the verifier uses"
