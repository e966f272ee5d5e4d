"""Build the environment of a task in the box: one layer per environment, kept by the hash of what it is made of.

The steps of the Dockerfile run in a shell box without network. The layer that they leave is saved in the cache, and every
episode starts from a copy. Two builds of the same environment at once are harmless: the first to finish is kept.
"""

import asyncio
import fnmatch
import hashlib
import json
import os
import posixpath
import shlex
from dataclasses import dataclass
from pathlib import Path

from palestra.errors import EnvError, Unsupported
from palestra.sandbox import Limits
from palestra.sandbox.layers import SAVED, NewFile, files_of
from palestra.sandbox.roots import Root, RootCache, drafted
from palestra.sandbox.shell import Shell, Shells
from palestra.worlds.harbor.classes import is_root, recipe_of
from palestra.worlds.harbor.dockerfile import Copy, Folder, ImageRecipe, Run
from palestra.worlds.harbor.schema import Environment
from palestra.worlds.harbor.task import tree_digest
from palestra.worlds.harbor.users import account_of

__all__ = ["Built", "build"]

_FORMAT = "5"
"""Part of every hash: raise it if the same Dockerfile builds something else than before."""


@dataclass(frozen=True)
class Built:
    """An environment that episodes can start from."""

    root: str
    """The root folder for ``Shells``; empty for the host's ``/usr``."""
    layer: Path
    variables: dict[str, str]
    workdir: str
    """An absolute path without a slash at its end."""
    users: bool = False
    """Whether its boxes have several users."""
    user: str = ""
    """The last ``USER`` of the Dockerfile, or that of its image."""


def _place(cache: RootCache, context: Path, environment: Environment, root: Root, kind: tuple[bool, bool]) -> Path:
    content = tree_digest(context) if context.is_dir() and not environment.docker_image else ""
    words = [_FORMAT, root.key, environment.docker_image or "", content, str(kind), str(os.geteuid() == 0)]
    return cache.folder / "layers" / hashlib.sha256(json.dumps(words).encode()).hexdigest()


async def build(
    cache: RootCache, context: Path, environment: Environment, root: Root, limits: Limits, *, users: bool = False
) -> Built:
    """Return the built environment, from the cache if it is there. With ``users``, its files have several owners.

    Raises:
        Unsupported: The Dockerfile needs something that a box cannot do.
        EnvError: A step of the Dockerfile failed.
    """
    recipe = recipe_of(context, environment, root)
    finished = bool(root.image) and root.image != recipe.image
    if recipe.refused:
        raise Unsupported("; ".join(recipe.refused))
    folder = _place(cache, context, environment, root, (finished, users))
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.parent.chmod(0o700)  # as root, files of the box's users belong to users of the host with the same numbers
        with drafted(folder) as draft:
            async with Shells(limits, root=root.path, users=users, warm=0) as shells, await shells.open() as shell:
                await _build(shell, context, recipe, environment.build_timeout_sec)
                await shell.save(draft)
    workdir = posixpath.normpath(posixpath.join("/", environment.workdir or recipe.workdir))
    variables = {**root.variables, **recipe.variables}
    return Built(root.path, folder / SAVED, variables, f"/{workdir.strip('/')}", users, recipe.user if users else "")


async def _build(shell: Shell, context: Path, recipe: ImageRecipe, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            for step in recipe.steps:
                await _take(shell, context, step, seconds)
    except TimeoutError:
        raise EnvError(f"the build took longer than environment.build_timeout_sec ({seconds:g} s)") from None


async def _take(shell: Shell, context: Path, step: Run | Copy | Folder, seconds: float) -> None:
    if isinstance(step, Folder):
        await _run(shell, f"mkdir -p -- {shlex.quote(step.path)}", step.line, seconds)
    elif isinstance(step, Copy):
        await _copy(shell, context, step, seconds)
    else:
        account = None if is_root(step.user) else await account_of(shell, step.user)
        variables = {**({"HOME": account.home} if account else {}), **dict(step.variables)}
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        became = account.words if account else ""
        command = f"cd {shlex.quote(step.workdir)} && {became} env {exports} /bin/sh -c {shlex.quote(step.command)} </dev/null"
        await _run(shell, command, step.line, seconds)


async def _run(shell: Shell, command: str, line: int, seconds: float) -> None:
    outcome = await shell.run(command, wall_seconds=seconds)
    if outcome.running or outcome.exit_code != 0:
        how = outcome.killed_by or f"exit code {outcome.exit_code}"
        if outcome.running:
            how = "it replaced the shell" if outcome.replaced else "it did not end"
        raise EnvError(f"Dockerfile line {line} failed in the box ({how}): {outcome.text.strip()[-500:]}")


async def _copy(shell: Shell, context: Path, step: Copy, seconds: float) -> None:
    inside = step.target.strip("/")
    above = inside if step.target.endswith("/") else posixpath.dirname(inside)
    await _run(shell, f"mkdir -p -- {shlex.quote('/' + above)}", step.line, seconds)
    real = await _real(shell, "/" + above)
    name = "" if step.target.endswith("/") else posixpath.basename(inside)
    files: list[NewFile] = []
    for source in step.sources:
        files += _sources(context, source, posixpath.join(real, name) if name else real, not name, step.line)
    shell.put([file if step.mode is None else file._replace(mode=step.mode) for file in files])


async def _real(shell: Shell, folder: str) -> str:
    """Return where ``folder`` leads to in the box: files are written without following links."""
    outcome = await shell.run(f"cd {shlex.quote(folder)} && pwd -P; cd", wall_seconds=10)
    return outcome.text.strip().strip("/")


def _sources(context: Path, source: str, target: str, into: bool, line: int) -> list[NewFile]:
    wanted = posixpath.normpath(source.lstrip("/"))
    if wanted.startswith(".."):
        raise EnvError(f"Dockerfile line {line}: {source} lies outside of the environment folder")
    if any(mark in wanted for mark in "*?["):
        names = sorted(path.relative_to(context).as_posix() for path in context.rglob("*"))
        matches = [name for name in names if fnmatch.fnmatchcase(name, wanted) and name.count("/") == wanted.count("/")]
    else:
        matches = [wanted] if (context / wanted).exists() else []
    if not matches:
        raise EnvError(f"Dockerfile line {line}: {source} is not in the environment folder")
    files: list[NewFile] = []
    for name in matches:
        path = context / name
        if not path.resolve().is_relative_to(context.resolve()):
            raise EnvError(f"Dockerfile line {line}: {name} is a link that leads out of the environment folder")
        path = path.resolve() if path.is_symlink() else path
        if path.is_dir():
            files += files_of(path, target)
        else:
            mode = path.stat().st_mode & 0o777
            files.append(NewFile(posixpath.join(target, path.name) if into else target, path.read_bytes(), mode))
    return files
