"""Play Harbor tasks: ``harbor:PATH#task``. The instruction is the first observation, and the verifier gives the reward.

The turns are those of ``terminal:``. A step of a task ends when the agent submits, with its last turn, or at
``agent.timeout_sec``; then the verifier runs. The reward of the episode is that of the only step, or of all steps, combined as
the task says. If a verifier fails, the episode fails with a ``GraderError``.
"""

import asyncio
import copy
import os
import re
import shlex
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from palestra.core import Step
from palestra.errors import EnvError, GraderError, InfrastructureError, MissingData, Unsupported, UsageError
from palestra.foundation.home import home_folder
from palestra.registry import parse_options
from palestra.sandbox import Limits
from palestra.sandbox.layers import files_of
from palestra.sandbox.roots import Root, RootCache
from palestra.sandbox.shell import LayerFull, Shell, Shells, shared_shells
from palestra.trajectory import Task
from palestra.worlds.harbor.building import Built, build
from palestra.worlds.harbor.classes import HOST, classify, images_of, is_root, recipe_of, relative_entry
from palestra.worlds.harbor.reading import find_tasks, read_task
from palestra.worlds.harbor.rewards import combined, passes, scalar
from palestra.worlds.harbor.schema import Environment
from palestra.worlds.harbor.task import HarborStep, HarborTask, identity_of
from palestra.worlds.harbor.users import Account, account_of, has_users
from palestra.worlds.harbor.verifying import LOGS, artifacts_of, assignments, run_verifier, startup_files_of, work_folder_of
from palestra.worlds.terminal.turns import HOW, ShellEnv

__all__ = ["Harbor", "harbor_cache", "limits_of"]

_HOST_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_MIB = 2**20
_MEMORY_MB, _STORAGE_MB = 2048, 512
_LOOKS, _LOOK_SECONDS = 5, 0.02
_SHOWN = 100
"""Characters of a process that are reported."""


def harbor_cache() -> RootCache:
    """Return the user's cache of root file systems and built environments."""
    return RootCache(home_folder("harbor"))


def limits_of(environment: Environment) -> Limits:
    """Return the limits of a box for ``environment``. Files of the box lie in memory, which counts as the box's.

    Raises:
        Unsupported: The task asks for more memory than this machine has.
    """
    memory = (environment.memory_in_mb or _MEMORY_MB) * _MIB
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory > machine:
        raise Unsupported(f"the task asks for {memory // _MIB} MiB of memory, and this machine has {machine // _MIB}")
    disk = min(environment.storage_in_mb or _STORAGE_MB, _STORAGE_MB) * _MIB
    return Limits(
        wall_seconds=60.0,
        session_cpu_seconds=3600,
        process_memory=max(memory, 1024 * _MIB),
        total_memory=memory + disk,
        file_bytes=disk,
        disk_bytes=disk,
        files=100_000,
        open_files=1024,
        processes=256,
        kept_output=256 * 1024,
    )


class _Grader(NamedTuple):
    """Where the verifier of a step runs: in the agent's environment, or in one of its own."""

    built: Built
    settings: Environment
    variables: dict[str, str]


class Harbor(ShellEnv):
    """The tasks of a folder.

    Args:
        address: ``PATH#task``, or ``PATH`` for all tasks of a folder or pack: the seed then draws one. Options may stand
            behind the path: ``PATH?base=host&verifier=clean#task``.
        trust: Let the task read the variables of this machine that its ``env`` tables name.
        max_turns: Turns per step of the task.
        command_seconds: A command that takes longer returns what it has printed.
        options: ``base="host"`` plays every image over this machine's ``/usr``; by default an image needs a root file system.
            ``verifier="clean"`` runs shared verifiers in a fresh box with the agent's working folder alone, unlike Harbor.
            ``reward`` is the name of the reward that counts, if a verifier gives several.
    """

    def __init__(
        self,
        address: str,
        *,
        trust: bool = False,
        max_turns: int = 50,
        command_seconds: float = 60.0,
        **options: str,
    ) -> None:
        super().__init__(max_turns, command_seconds)
        place, _, self._name = address.partition("#")
        path, written = parse_options(place)
        settings = {"base": "", "verifier": "", "reward": "", **written, **options}
        if unknown := set(settings) - {"base", "verifier", "reward"}:
            raise UsageError(f"harbor: has no option {', '.join(sorted(unknown))}; there are base, verifier and reward")
        if settings["base"] not in ("", HOST) or settings["verifier"] not in ("", "clean"):
            raise UsageError('the option base is "host", and verifier is "clean", or they are left out')
        self._base, self._mode, self._key = settings["base"], settings["verifier"], settings["reward"]
        self._trust = trust
        self._folders = _chosen(find_tasks(path), self._name)
        self._read: dict[Path, HarborTask] = {}
        self._ready: dict[Path, tuple[dict[str, str], Built, list[_Grader]]] = {}
        """The images of the cache, and what was built over them for the tasks that were played: to find it again, every file of
        a task would be read and hashed."""
        self._pools: dict[tuple[Limits, str, bool], Shells] = {}
        self._cache = harbor_cache()

    # --------------------------------------------------------------------------------------------------------------- beginning

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        self._begin(seed, task)
        self._forget()
        await self._close_shell()
        many = len(self._folders) > 1
        folder = self._folders[int(self.rng.integers(len(self._folders)))] if many else self._folders[0]
        self._harbor = self._read.get(folder) or read_task(folder)
        self._read[folder] = self._harbor
        await self._make_ready(folder)
        self._shell = await self._open(self._built, self._harbor.config.environment)
        self._place = 0
        self._accounts: dict[str, Account] = {}
        self._rewards: list[dict[str, float]] = []
        instruction = await self._begin_step()
        how = HOW.format(home=self._built.workdir, turns=self.max_turns)
        return f"{how}\n\n{instruction}", {"max_turns": self.max_turns * len(self._harbor.steps), "task": self._harbor.name}

    async def _make_ready(self, folder: Path) -> None:
        """Build the environments of the task, unless this has happened before and the cache is as it was."""
        images, found = self._cache.images(), self._ready.get(folder)
        if found is not None and found[0] == images and all(one.layer.is_dir() for one in _all_built(*found[1:])):
            _, self._built, self._graders = found
            return
        self._built = await self._build(self._harbor.environment, self._harbor.config.environment)
        self._graders = [await self._grader_of(step) for step in self._harbor.steps]
        self._ready[folder] = images, self._built, self._graders

    async def _build(self, context: Path, environment: Environment) -> Built:
        known = self._cache.images()
        if self._base == HOST:
            placement = classify(self._harbor, {*known, *images_of(self._harbor)})
        else:
            placement = classify(self._harbor, known, self._cache.find)
        if placement.kind == 3:
            raise Unsupported(f"{self._harbor.name} needs docker: {placement.because}")
        image = recipe_of(context, environment).image
        prepared = self._cache.find(identity_of(context, environment))
        root = Root(HOST, "") if self._base == HOST else prepared or self._cache.find(image)
        if placement.kind == 2 or root is None:
            raise MissingData(f"{self._harbor.name} is not prepared: {placement.because} (palestra harbor build --help)")
        users = has_users(self._harbor, recipe_of(context, environment, root))
        return await build(self._cache, context, environment, root, limits_of(environment), users=users)

    async def _grader_of(self, step: HarborStep) -> _Grader:
        """Return where the verifier of ``step`` runs. What is wrong with it shows here, before the agent works."""
        built, settings = self._built, self._harbor.config.environment
        if step.separate:
            settings = step.verifier_environment
            try:
                built = await self._build(step.verifier_context, settings)
            except EnvError as error:
                raise GraderError(f"the environment of the verifier could not be built: {error}") from None
        elif self._mode == "clean" and built.workdir == "/":
            raise Unsupported(
                f"{self._harbor.name}: a clean verifier gets the working folder, but that is /: "
                "set environment.workdir, or use a separate verifier"
            )
        variables = {**built.variables, **self._resolved(settings.env), **self._resolved(step.verifier_env)}
        if sentence := relative_entry(variables):
            raise Unsupported(f"{self._harbor.name}: {sentence}")
        return _Grader(built, settings, variables)

    async def _open(self, built: Built, environment: Environment) -> Shell:
        """Open a box of a built environment, in its working folder and with its variables."""
        key = (limits_of(environment), built.root, built.users)
        if key not in self._pools:
            self._pools[key] = await self._stack.enter_async_context(shared_shells(*key))
        layer = os.open(built.layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            shell = await self._pools[key].open_from(layer)
        finally:
            os.close(layer)
        try:
            await self._enter(shell, built, environment)
        except BaseException:
            await shell.close()
            raise
        return shell

    async def _enter(self, shell: Shell, built: Built, environment: Environment) -> None:
        variables = {**built.variables, **self._resolved(environment.env)}
        exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in variables.items())
        folders = " ".join(f"/{folder}" for folder in LOGS)
        where = shlex.quote(built.workdir)
        writable = f"chmod 777 {folders}; " if built.users else ""
        outcome = await shell.run(f"mkdir -p {folders} {where}; {writable}{exports}cd {where}")
        if outcome.exit_code != 0:
            raise EnvError(f"the box could not be prepared: {outcome.text.strip()[-300:]}")

    def _resolved(self, table: Mapping[str, str]) -> dict[str, str]:
        """Return ``table`` with the variables of this machine that it names, if the folder is trusted."""

        def value(found: re.Match[str]) -> str:
            name, default = found.groups()
            if self._trust and name in os.environ:
                return os.environ[name]
            if default is None:
                raise UsageError(f"{self._harbor.name} wants the variable {name} of this machine: pass trust=True to allow it")
            return str(default)

        return {name: _HOST_VARIABLE.sub(value, text) for name, text in table.items()}

    async def _begin_step(self) -> str:
        """Prepare the next step of the task and return its instruction."""
        assert self._shell is not None
        step = self._harbor.steps[self._place]
        self._turn = self._done = 0
        self._plan = ()
        self._deadline = time.monotonic() + (step.agent.timeout_sec or float("inf"))
        if step.workdir is not None:
            self._shell.put(files_of(step.workdir, self._built.workdir.strip("/")))
            if (step.workdir / "setup.sh").is_file():
                outcome = await self._shell.run("bash ./setup.sh < /dev/null", wall_seconds=300)
                if outcome.exit_code != 0:
                    raise EnvError(f"setup.sh of step {step.name} failed: {outcome.text.strip()[-300:]}")
        await self._find_accounts()
        if account := self._accounts.get(_user_of(step.agent.user, self._built)):
            await self._shell.become(account.words, account.home)
            await self._shell.run(f"cd {shlex.quote(self._built.workdir)}")
        return step.instruction

    async def _find_accounts(self) -> None:
        """Look up the users of this step and of all later ones, before a program of the agent could answer instead.

        A user that is missing may still be made by ``setup.sh`` of a later step.
        """
        assert self._shell is not None
        for place, step in enumerate(self._harbor.steps[self._place :]):
            own_box = step.separate or self._mode == "clean"
            for user in (step.agent.user, *([] if own_box else [step.verifier.user])):
                name = _user_of(user, self._built)
                if name in self._accounts or is_root(name):
                    continue
                try:
                    self._accounts[name] = await account_of(self._shell, name)
                except EnvError:
                    if not place:
                        raise

    # ------------------------------------------------------------------------------------------------------------------ ending

    async def step(self, action: str) -> Step:
        if time.monotonic() > self._deadline:
            return await self._judged("[the agent's time is over]", {})
        return await super().step(action)

    async def _judged(self, shown: str, info: dict[str, Any]) -> Step:
        step = self._harbor.steps[self._place]
        self._beside: list[str] = []
        try:
            self._rewards.append(await self._verify(step))
        except LayerFull as error:  # of the agent's own making: see Shell.reopened
            self._rewards.append({self._key or "reward": 0.0})
            return self._ended(shown, {**info, "ruined": str(error)})
        if self._beside and not step.separate and self._mode != "clean":
            info = {**info, "beside_verifier": self._beside}  # the reward may be forged: see _fresh
        self._place += 1
        if self._place < len(self._harbor.steps) and passes(self._rewards[-1], step.min_reward):
            assert self._shell is not None
            await self._shell.run("rm -rf /tests; cd " + shlex.quote(self._built.workdir))
            following = await self._begin_step()
            return Step(f"{shown}\n\n{following}".strip(), 0.0, False, False, info)
        return self._ended(shown, info)

    def _ended(self, shown: str, info: dict[str, Any]) -> Step:
        total = combined(self._rewards, self._harbor.config.multi_step_reward_strategy)
        value = scalar(total, self._key)
        return Step(shown, value, True, False, {**info, "success": value >= 1.0, "metrics": total})

    async def _verify(self, step: HarborStep) -> dict[str, float]:
        built, settings, variables = self._graders[self._place]
        seconds, workdir = step.verifier.timeout_sec, self._built.workdir
        if step.separate:
            shell = await self._collected(step)
            files = artifacts_of(shell, step.artifacts, workdir)
            tests = () if step.bundled_tests else step.tests
        elif self._mode == "clean":
            files, tests = work_folder_of(await self._left(), workdir), step.tests
        else:
            shell = await self._fresh()
            account = self._accounts.get(_user_of(step.verifier.user, built))
            return await run_verifier(shell, step.tests, workdir, variables, seconds, account)
        async with await self._open(built, settings) as box:
            user = _user_of(step.verifier.user, built)
            account = None if is_root(user) else await account_of(box, user)  # before files of the agent are there
            if not step.separate:
                box.move_away(workdir.strip("/"))
            try:
                box.put(files)
            except InfrastructureError as error:
                raise GraderError(f"the agent's files could not be copied to the verifier: {error}") from None
            if account and not step.separate:
                await _give(box, workdir, account)
            return await run_verifier(box, tests, built.workdir, variables, seconds, account)

    async def _collected(self, step: HarborStep) -> Shell:
        """Run the commands that prepare the artifacts, and return the shell whose files a separate verifier gets."""
        for hook in step.verifier.collect:  # as in Harbor, one that fails does not stop the verifier
            shell = await self._fresh()
            await shell.run(f"( {hook.command}\n) < /dev/null", wall_seconds=hook.timeout_sec)
        return await self._left()

    async def _left(self) -> Shell:
        """Return the shell with the agent's files. After the last step it is stopped: nothing changes them while they are read.

        Before another step, processes of the agent stay, because the agent may need them there.
        """
        if self._place + 1 < len(self._harbor.steps):
            return await self._fresh()
        assert self._shell is not None
        await self._shell.stop()
        return self._shell

    async def _fresh(self) -> Shell:
        """Return a new shell over the agent's files: aliases, functions and traps of the agent's own could start anything.

        If processes of the agent still run, such as a server that it was asked to start, it is the agent's own shell at its
        prompt, because a new one would end them. Processes of another user than root end, because the verifier needs root's.
        """
        old = self._shell
        assert old is not None
        if old.alive and old.running:
            await old.interrupt()
        for _ in range(
            _LOOKS if old.alive and not old.became else 0
        ):  # a process that was just started has no name yet, and is not listed
            if beside := old.processes():
                self._beside += [" ".join(process.words)[:_SHOWN] for process in beside]
                return old
            await asyncio.sleep(_LOOK_SECONDS)
        await old.stop()
        kept = startup_files_of(old)
        self._shell = await old.reopened()
        await old.close()
        self._shell.put(kept)
        try:
            await self._enter(self._shell, self._built, self._harbor.config.environment)
        except EnvError:
            if not self._shell.alive:
                raise
            # The agent has closed its folder, which is no failure of the environment: the verifier starts elsewhere.
        return self._shell

    async def fork(self) -> "Harbor":
        """Return a twin with a copy of the files, the working folder and the exported variables.

        Raises:
            Unsupported: Processes of the agent run; they cannot be copied.
        """
        assert self._shell is not None
        twin = copy.copy(self)  # not a new one, which would find and hash the tasks again
        twin._stack, twin._pools, twin._shell = AsyncExitStack(), {}, None
        twin._rewards = list(self._rewards)
        twin._begin(None, self.task)
        twin._action_rng = copy.deepcopy(self._action_rng)
        try:
            for key in self._pools:
                twin._pools[key] = await twin._stack.enter_async_context(shared_shells(*key))
            twin._shell = await self._shell.fork()
        except BaseException:
            await twin.close()
            raise
        return twin

    # ------------------------------------------------------------------------------------------------------------------ players

    async def oracle(self) -> str:
        """Return a command that runs the task's own solution, and then the end."""
        assert self._shell is not None
        step = self._harbor.steps[self._place]
        if step.solution is None:
            raise Unsupported(f"{self._harbor.name} has no solution/solve.sh")
        if self._shell.running:
            return "```bash\n\n```"
        if not self._plan:
            files = files_of(step.solution, "solution")
            # The agent's user must be able to read and start them, whatever the user of the host has set.
            self._shell.put([file._replace(mode=file.mode | (0o555 if file.path.endswith(".sh") else 0o444)) for file in files])
            variables = self._resolved(self._harbor.config.solution.env)
            self._plan = [f"{assignments(variables)} /solution/solve.sh < /dev/null"]
        return await super().oracle()

    async def close(self) -> None:
        self._pools.clear()
        await super().close()


def _all_built(built: Built, graders: list[_Grader]) -> list[Built]:
    return [built, *(grader.built for grader in graders)]


def _user_of(user: str | int | None, built: Built) -> str:
    """Return the user that a table of the task names, or that of the image."""
    return built.user if user is None else str(user)


async def _give(box: Shell, folder: str, account: Account) -> None:
    """Let the working folder belong to the verifier's user, who could not write to root's."""
    outcome = await box.run(f"mkdir -p {shlex.quote(folder)} && chown -hR {account.uid}:{account.gid} {shlex.quote(folder)}")
    if outcome.exit_code != 0:
        raise GraderError(f"the agent's files could not be given to the verifier's user: {outcome.text.strip()[-300:]}")


def _chosen(folders: list[Path], name: str) -> list[Path]:
    """Return the task whose path ends with ``name``; if there is none, the one with the name behind the last slash.

    The part before the slash may be no folder: a task of the folder ``t`` may be called ``org/t``.
    """
    if not name:
        return folders
    whole = PurePosixPath(name).parts
    for parts in (whole, whole[-1:]):
        found = [folder for folder in folders if folder.resolve().parts[-len(parts) :] == parts]
        if len(found) > 1:
            named = ", ".join("/".join(folder.resolve().parts[-len(parts) - 1 :]) for folder in found[:5])
            raise UsageError(f'{len(found)} tasks there are called "{name}": choose one by its folder, such as {named}')
        if found:
            return found
    near = ", ".join(folder.name for folder in folders[:5])
    raise UsageError(f'no task "{name}" there: the folder has {len(folders)}, such as {near}')
