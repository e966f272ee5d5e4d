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
from palestra.worlds.terminal.turns import HOW, Attempt, ShellEnv

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


class _Setup(NamedTuple):
    """A built environment, and what a box over it begins with."""

    built: Built
    environment: Environment
    variables: dict[str, str]

    async def enter(self, shell: Shell) -> None:
        """Go to the working folder, with the variables exported."""
        exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in self.variables.items())
        folders = " ".join(f"/{folder}" for folder in LOGS)
        workdir = shlex.quote(self.built.workdir)
        writable = f"chmod 777 {folders}; " if self.built.users else ""
        outcome = await shell.run(f"mkdir -p {folders} {workdir}; {writable}{exports}cd {workdir}")
        if outcome.exit_code != 0:
            raise EnvError(f"the box could not be prepared: {outcome.text.strip()[-300:]}")


class _Grader(NamedTuple):
    """Where the verifier of a step runs, in the agent's environment or in one of its own, and with which variables."""

    setup: _Setup
    variables: dict[str, str]


class _Prepared(NamedTuple):
    """What was built for a task. To find it again, every file of the task would be read and hashed."""

    images: dict[str, str]
    """The images of the cache over which it was built."""
    built: Built
    graders: list[_Grader]

    def stands(self, images: dict[str, str]) -> bool:
        """Return whether the cache, which has ``images`` now, is as it was."""
        layers = [self.built.layer, *(grader.setup.built.layer for grader in self.graders)]
        return self.images == images and all(layer.is_dir() for layer in layers)


class _Attempt(Attempt):
    """One episode: the task, its environments, and how far the agent has come."""

    def __init__(self, shell: Shell, task: HarborTask, setup: _Setup, graders: list[_Grader]) -> None:
        super().__init__(shell)
        self.task = task
        self.setup = setup
        self.graders = graders
        """Where the verifier of each step runs."""
        self.number = 0
        """The place of the step in the task."""
        self.deadline = float("inf")
        self.accounts: dict[str, Account] = {}
        """Users of the agent's box that are not root, as they were before a program of the agent could answer."""
        self.rewards: list[dict[str, float]] = []
        """Those of each step that was judged."""
        self.beside_verifier: list[str] = []
        """The processes of the agent that ran when the last verifier began, in the same box."""

    @property
    def step(self) -> HarborStep:
        return self.task.steps[self.number]

    @property
    def is_last_step(self) -> bool:
        return self.number + 1 == len(self.task.steps)

    async def left(self) -> Shell:
        """Return the shell with the agent's files. After the last step it is stopped: nothing changes them while they are read.

        Before another step, processes of the agent stay, because the agent may need them there.
        """
        if not self.is_last_step:
            return await self.fresh()
        await self.shell.stop()
        return self.shell

    async def fresh(self) -> Shell:
        """Return a new shell over the agent's files: aliases, functions and traps of the agent's own could start anything.

        If processes of the agent still run, such as a server that it was asked to start, it is the agent's own shell at its
        prompt, because a new one would end them. Processes of another user than root end, because the verifier needs root's.
        """
        old = self.shell
        if old.alive and old.running:
            await old.interrupt()
        if old.alive and not old.became:
            for _ in range(_LOOKS):  # a process that was just started has no name yet, and is not listed
                if beside := old.processes():
                    self.beside_verifier += [" ".join(process.words)[:_SHOWN] for process in beside]
                    return old
                await asyncio.sleep(_LOOK_SECONDS)
        await old.stop()
        system_files = startup_files_of(old)
        self.shell = await old.reopened()
        await old.close()
        self.shell.put(system_files)
        try:
            await self.setup.enter(self.shell)
        except EnvError:
            if not self.shell.alive:
                raise
            # The agent has closed its folder, which is no failure of the environment: the verifier starts elsewhere.
        return self.shell


class Harbor(ShellEnv[_Attempt]):
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
        folder, _, name = address.partition("#")
        path, written = parse_options(folder)
        settings = {"base": "", "verifier": "", "reward": "", **written, **options}
        if unknown := set(settings) - {"base", "verifier", "reward"}:
            raise UsageError(f"harbor: has no option {', '.join(sorted(unknown))}; there are base, verifier and reward")
        if settings["base"] not in ("", HOST) or settings["verifier"] not in ("", "clean"):
            raise UsageError('the option base is "host", and verifier is "clean", or they are left out')
        self._base, self._mode, self._key = settings["base"], settings["verifier"], settings["reward"]
        self._trust = trust
        self._folders = _chosen(find_tasks(path), name)
        self._read: dict[Path, HarborTask] = {}
        self._prepared: dict[Path, _Prepared] = {}
        self._pools: dict[tuple[Limits, str, bool], Shells] = {}
        self._cache = harbor_cache()

    # --------------------------------------------------------------------------------------------------------------- beginning

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        self._begin(seed, task)
        await self._leave()
        many = len(self._folders) > 1
        folder = self._folders[int(self.rng.integers(len(self._folders)))] if many else self._folders[0]
        harbor = self._read.get(folder) or read_task(folder)
        self._read[folder] = harbor
        images, prepared = self._cache.images(), self._prepared.get(folder)
        if prepared is None or not prepared.stands(images):
            built = await self._build(harbor, harbor.environment, harbor.config.environment)
            prepared = _Prepared(images, built, [await self._grader_of(harbor, step, built) for step in harbor.steps])
            self._prepared[folder] = prepared
        setup = self._setup(harbor, prepared.built, harbor.config.environment)
        self._current = _Attempt(await self._open(setup), harbor, setup, prepared.graders)
        instruction = await self._begin_step()
        how = HOW.format(home=setup.built.workdir, turns=self.max_turns)
        return f"{how}\n\n{instruction}", {"max_turns": self.max_turns * len(harbor.steps), "task": harbor.name}

    async def _build(self, task: HarborTask, context: Path, environment: Environment) -> Built:
        images = self._cache.images()
        if self._base == HOST:
            placement = classify(task, {*images, *images_of(task)})
        else:
            placement = classify(task, images, self._cache.find)
        if placement.kind == 3:
            raise Unsupported(f"{task.name} needs docker: {placement.because}")
        image = recipe_of(context, environment).image
        prepared = self._cache.find(identity_of(context, environment))
        root = Root(HOST, "") if self._base == HOST else prepared or self._cache.find(image)
        if placement.kind == 2 or root is None:
            raise MissingData(f"{task.name} is not prepared: {placement.because} (palestra harbor build --help)")
        users = has_users(task, recipe_of(context, environment, root))
        return await build(self._cache, context, environment, root, limits_of(environment), users=users)

    async def _grader_of(self, task: HarborTask, step: HarborStep, built: Built) -> _Grader:
        """Return where the verifier of ``step`` runs. What is wrong with it shows here, before the agent works."""
        environment = task.config.environment
        if step.separate:
            environment = step.verifier_environment
            try:
                built = await self._build(task, step.verifier_context, environment)
            except EnvError as error:
                raise GraderError(f"the environment of the verifier could not be built: {error}") from error
        elif self._mode == "clean" and built.workdir == "/":
            raise Unsupported(
                f"{task.name}: a clean verifier gets the working folder, but that is /: "
                "set environment.workdir, or use a separate verifier"
            )
        setup = self._setup(task, built, environment)
        variables = {**setup.variables, **self._resolved(task, step.verifier_env)}
        if sentence := relative_entry(variables):
            raise Unsupported(f"{task.name}: {sentence}")
        return _Grader(setup, variables)

    def _setup(self, task: HarborTask, built: Built, environment: Environment) -> _Setup:
        return _Setup(built, environment, {**built.variables, **self._resolved(task, environment.env)})

    async def _open(self, setup: _Setup) -> Shell:
        """Open a box of a built environment, in its working folder and with its variables."""
        key = (limits_of(setup.environment), setup.built.root, setup.built.users)
        if key not in self._pools:
            self._pools[key] = await self._stack.enter_async_context(shared_shells(*key))
        layer = os.open(setup.built.layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            shell = await self._pools[key].open_from(layer)
        finally:
            os.close(layer)
        try:
            await setup.enter(shell)
        except BaseException:
            await shell.close()
            raise
        return shell

    def _resolved(self, task: HarborTask, table: Mapping[str, str]) -> dict[str, str]:
        """Return ``table`` with the variables of this machine that it names, if the folder is trusted."""

        def value(match: re.Match[str]) -> str:
            name, default = match.groups()
            if self._trust and name in os.environ:
                return os.environ[name]
            if default is None:
                raise UsageError(f"{task.name} wants the variable {name} of this machine: pass trust=True to allow it")
            return str(default)

        return {name: _HOST_VARIABLE.sub(value, text) for name, text in table.items()}

    async def _begin_step(self) -> str:
        """Prepare the next step of the task and return its instruction."""
        attempt = self._attempt
        step, shell, built = attempt.step, attempt.shell, attempt.setup.built
        attempt.turn = attempt.done = 0
        attempt.plan = ()
        attempt.deadline = time.monotonic() + (step.agent.timeout_sec or float("inf"))
        if step.workdir is not None:
            shell.put(files_of(step.workdir, built.workdir.strip("/")))
            if (step.workdir / "setup.sh").is_file():
                outcome = await shell.run("bash ./setup.sh < /dev/null", wall_seconds=300)
                if outcome.exit_code != 0:
                    raise EnvError(f"setup.sh of step {step.name} failed: {outcome.text.strip()[-300:]}")
        await self._find_accounts()
        if account := attempt.accounts.get(_user_of(step.agent.user, built)):
            await shell.become(account.words, account.home)
            await shell.run(f"cd {shlex.quote(built.workdir)}")
        return step.instruction

    async def _find_accounts(self) -> None:
        """Look up the users of this step and of all later ones, before a program of the agent could answer instead.

        A user that is missing may still be made by ``setup.sh`` of a later step.
        """
        attempt = self._attempt
        for following, step in enumerate(attempt.task.steps[attempt.number :]):
            users = [step.agent.user]
            if not step.separate and self._mode != "clean":  # else the verifier's user is that of another box
                users.append(step.verifier.user)
            for user in users:
                name = _user_of(user, attempt.setup.built)
                if name in attempt.accounts or is_root(name):
                    continue
                try:
                    attempt.accounts[name] = await account_of(attempt.shell, name)
                except EnvError:
                    if following == 0:
                        raise

    # ------------------------------------------------------------------------------------------------------------------ ending

    async def step(self, action: str) -> Step:
        if time.monotonic() > self._attempt.deadline:
            return await self._judged("[the agent's time is over]", {})
        return await super().step(action)

    async def _judged(self, shown: str, info: dict[str, Any]) -> Step:
        attempt, step = self._attempt, self._attempt.step
        attempt.beside_verifier = []
        try:
            attempt.rewards.append(await self._verify(step))
        except LayerFull as error:  # of the agent's own making: see Shell.reopened
            attempt.rewards.append({self._key or "reward": 0.0})
            return self._ended(shown, {**info, "ruined": str(error)})
        if attempt.beside_verifier and not step.separate and self._mode != "clean":
            info = {**info, "beside_verifier": attempt.beside_verifier}  # the reward may be forged: see _Attempt.fresh
        if not attempt.is_last_step and passes(attempt.rewards[-1], step.min_reward):
            attempt.number += 1
            await attempt.shell.run("rm -rf /tests; cd " + shlex.quote(attempt.setup.built.workdir))
            following = await self._begin_step()
            return Step(f"{shown}\n\n{following}".strip(), 0.0, False, False, info)
        return self._ended(shown, info)

    def _ended(self, shown: str, info: dict[str, Any]) -> Step:
        total = combined(self._attempt.rewards, self._attempt.task.config.multi_step_reward_strategy)
        value = scalar(total, self._key)
        return Step(shown, value, True, False, {**info, "success": value >= 1.0, "metrics": total})

    async def _verify(self, step: HarborStep) -> dict[str, float]:
        """Run the verifier of ``step`` where it belongs: in the agent's box, or in another one that gets files of the agent."""
        attempt = self._attempt
        (setup, variables), workdir = attempt.graders[attempt.number], attempt.setup.built.workdir
        seconds, user = step.verifier.timeout_sec, _user_of(step.verifier.user, setup.built)
        if not step.separate and self._mode != "clean":
            return await run_verifier(
                await attempt.fresh(), step.tests, workdir, variables, seconds, attempt.accounts.get(user)
            )
        if step.separate:
            for hook in step.verifier.collect:  # as in Harbor, one that fails does not stop the verifier
                await (await attempt.fresh()).run(f"( {hook.command}\n) < /dev/null", wall_seconds=hook.timeout_sec)
            files = artifacts_of(await attempt.left(), step.artifacts, workdir)
        else:
            files = work_folder_of(await attempt.left(), workdir)
        async with await self._open(setup) as box:
            account = None if is_root(user) else await account_of(box, user)  # before files of the agent are there
            if not step.separate:
                box.move_away(workdir.strip("/"))
            try:
                box.put(files)
            except InfrastructureError as error:
                raise GraderError(f"the agent's files could not be copied to the verifier: {error}") from error
            if account and not step.separate:
                await _give(box, workdir, account)
            tests = () if step.bundled_tests and step.separate else step.tests
            return await run_verifier(box, tests, setup.built.workdir, variables, seconds, account)

    async def fork(self) -> "Harbor":
        """Return a twin with a copy of the files, the working folder and the exported variables.

        Raises:
            Unsupported: Processes of the agent run; they cannot be copied.
        """
        twin = copy.copy(self)  # not a new one, which would find and hash the tasks again
        twin._stack, twin._pools, twin._current = AsyncExitStack(), {}, None
        twin._begin(None, self.task)
        twin._action_rng = copy.deepcopy(self._action_rng)
        try:
            for key in self._pools:
                twin._pools[key] = await twin._stack.enter_async_context(shared_shells(*key))
            shell = await self._attempt.shell.fork()
            twin._current = copy.copy(self._attempt)
            twin._current.shell, twin._current.rewards = shell, list(self._attempt.rewards)
        except BaseException:
            await twin.close()
            raise
        return twin

    # ------------------------------------------------------------------------------------------------------------------ players

    async def oracle(self) -> str:
        """Return a command that runs the task's own solution, and then the end."""
        attempt = self._attempt
        step = attempt.step
        if step.solution is None:
            raise Unsupported(f"{attempt.task.name} has no solution/solve.sh")
        if attempt.shell.running:
            return "```bash\n\n```"
        if not attempt.plan:
            files = files_of(step.solution, "solution")
            # The agent's user must be able to read and start them, whatever the user of the host has set.
            attempt.shell.put(
                [file._replace(mode=file.mode | (0o555 if file.path.endswith(".sh") else 0o444)) for file in files]
            )
            variables = self._resolved(attempt.task, attempt.task.config.solution.env)
            attempt.plan = [f"{assignments(variables)} /solution/solve.sh < /dev/null"]
        return await super().oracle()

    async def close(self) -> None:
        self._pools.clear()
        await super().close()


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
    path = PurePosixPath(name).parts
    for parts in (path, path[-1:]):
        matches = [folder for folder in folders if folder.resolve().parts[-len(parts) :] == parts]
        if len(matches) > 1:
            named = ", ".join("/".join(folder.resolve().parts[-len(parts) - 1 :]) for folder in matches[:5])
            raise UsageError(f'{len(matches)} tasks there are called "{name}": choose one by its folder, such as {named}')
        if matches:
            return matches
    near = ", ".join(folder.name for folder in folders[:5])
    raise UsageError(f'no task "{name}" there: the folder has {len(folders)}, such as {near}')
