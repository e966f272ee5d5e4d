"""One box for a whole trial that another program leads: it runs commands and copies files, one after another.

Harbor's own runner uses it through ``palestra.bridges.harbor``.
"""

import asyncio
import os
import secrets
import shlex
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from palestra.errors import Unsupported
from palestra.sandbox.layers import NewFile, files_of
from palestra.sandbox.roots import HOST, Root
from palestra.sandbox.shell import Shell, ShellOutcome, Shells
from palestra.worlds.harbor.building import Built, build
from palestra.worlds.harbor.classes import Reason, environment_reasons, recipe_of, users_of
from palestra.worlds.harbor.dockerfile import DEFAULT_PATH
from palestra.worlds.harbor.env import harbor_cache, limits_of
from palestra.worlds.harbor.schema import Environment
from palestra.worlds.harbor.task import identity_of

__all__ = ["Session"]

_DAY = 86_400.0


class Session:
    """One open box, and the commands and files of a trial in it."""

    def __init__(self, shell: Shell, built: Built) -> None:
        self._shell, self._built = shell, built
        self._one_command = asyncio.Lock()
        self._opened = AsyncExitStack()

    @classmethod
    async def start(cls, context: Path, environment: Environment, base: str) -> "Session":
        """Build ``environment`` and open a box over it."""
        cache, image = harbor_cache(), recipe_of(context, environment).image
        images = cache.images() if base != HOST else {*cache.images(), image}
        root = Root(HOST, "") if base == HOST else cache.find(identity_of(context, environment)) or cache.find(image)
        reasons = environment_reasons(context, environment, images)
        recipe = recipe_of(context, environment, root) if root else recipe_of(context, environment)
        reasons += [Reason(3, f"USER {user}: a trial's box has one user") for user in users_of(recipe)]
        if reasons or root is None:
            raise Unsupported("a box cannot play this task: " + "; ".join(reason.sentence for reason in reasons))
        limits = limits_of(environment)
        built = await build(cache, context, environment, root, limits)
        layer = os.open(built.layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            async with AsyncExitStack() as opened:
                shells = await opened.enter_async_context(Shells(limits, root=built.root, session_seconds=_DAY, warm=0))
                session = cls(await opened.enter_async_context(await shells.open_from(layer)), built)
                await session.run(f"mkdir -p {shlex.quote(built.workdir)}", "/", {}, 60.0)
                session._opened = opened.pop_all()
                return session
        finally:
            os.close(layer)

    async def close(self) -> None:
        """Kill everything in the box, and free its files and descriptors."""
        await self._opened.aclose()

    async def run(self, command: str, cwd: str | None, env: dict[str, str], seconds: float | None) -> dict[str, Any]:
        """Run ``command`` with bash, in the working folder and with the variables of the image unless others are given."""
        name = f"/tmp/.palestra-{secrets.token_hex(8)}"  # noqa: S108 - inside the box
        variables = {"PATH": DEFAULT_PATH, "HOME": "/root", **self._built.variables, **env}
        assigned = " ".join(f"{key}={shlex.quote(value)}" for key, value in variables.items())
        words = f"cd {shlex.quote(cwd or self._built.workdir)} && exec env -i {assigned} bash {name}.sh"
        async with self._one_command:
            self._shell.put([NewFile(f"{name}.sh".lstrip("/"), command.encode())])
            outcome = await self._undisturbed(f"( {words} ) > {name}.out 2> {name}.err < /dev/null", seconds or _DAY)
            if outcome.running:
                await self._shell.interrupt()
                await self._shell.run(f"rm -f {name}.*")
                raise RuntimeError(f"Command timed out after {seconds:g} seconds")
            if outcome.ended or outcome.exit_code is None:
                raise RuntimeError(f"the box has ended: {outcome.killed_by or 'its shell has exited'}")
            out, err = self._written(f"{name}.out"), self._written(f"{name}.err")
            await self._shell.run(f"rm -f {name}.*")
        return {"stdout": out, "stderr": err, "return_code": outcome.exit_code}

    def _written(self, path: str) -> str:
        """Return what a command wrote; nothing if it removed the file, as a command that empties /tmp does."""
        try:
            return self._shell.fetch(path.lstrip("/")).decode(errors="replace")
        except FileNotFoundError:
            return ""

    async def _undisturbed(self, words: str, seconds: float) -> ShellOutcome:
        """Run ``words``. If the caller is cancelled, stop the command and keep the box: the verifier still needs it."""
        running = asyncio.ensure_future(self._shell.run(words, wall_seconds=seconds))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._shell.interrupt()
            await running
            raise

    async def real(self, path: str) -> str:
        """Return where ``path`` leads to, without the first slash: files are copied without following links."""
        result = await self.run(f"realpath -m -- {shlex.quote(path)}", "/", {}, 60.0)
        return str(result["stdout"]).strip().lstrip("/")

    async def put(self, source: Path, target: str) -> None:
        """Copy a file to ``target``, or the files of a folder below it."""
        path = await self.real(target)
        if source.is_dir():  # noqa: ASYNC240 - local files, copied as the shell copies
            self._shell.put([NewFile(f"{path}/.palestra"), *files_of(source.resolve(), path)])  # noqa: ASYNC240 - see above
            await self.run(f"rm -f {shlex.quote(f'/{path}/.palestra')}", "/", {}, 60.0)
        else:
            self._shell.put([_new_file(source, path)])

    async def get(self, source: str, target: Path) -> None:
        """Copy a file to ``target``, or the files of a folder below it. Links that lead out of the folder are left out."""
        path = await self.real(source)
        for file in self._shell.copy_of(path):
            _write(file, Path(str(target) + file.path.removeprefix(path)))


def _new_file(source: Path, path: str) -> NewFile:
    return NewFile(path, source.read_bytes(), source.stat().st_mode & 0o777)


def _write(file: NewFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not file.link:
        path.write_bytes(file.content)
        path.chmod(file.mode | 0o600)
    elif not file.link.startswith("/") and ".." not in file.link.split("/"):
        path.unlink(missing_ok=True)
        path.symlink_to(file.link)
