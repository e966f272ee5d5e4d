"""The users of a task: whether it needs several, and how a command runs as one of them."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from palestra.envs.harbor.classes import is_root, recipe_of
from palestra.envs.harbor.dockerfile import Run
from palestra.envs.harbor.task import HarborStep, HarborTask
from palestra.errors import EnvError
from palestra.sandbox.shell import Shell

__all__ = ["Account", "account_of", "needs_users"]

_COMMANDS = re.compile(
    r"\b(?:user(?:add|mod|del)|adduser|group(?:add|mod|del)|addgroup|chown|chgrp|runuser|su|sudo|gosu|setpriv|install\s+-[og])\b"
)


def needs_users(task: HarborTask) -> bool:
    """Return whether the task names a user other than root, or a script of it calls a program that is about users."""
    if any(not is_root(user) for user in _named(task)):
        return True
    return any(_COMMANDS.search(text) for text in _texts(task))


def _named(task: HarborTask) -> Iterator[str | int | None]:
    for context, table in task.contexts:
        yield recipe_of(context, table).user
    for step in task.steps:
        yield step.agent.user
        yield step.verifier.user


def _texts(task: HarborTask) -> Iterator[str]:
    for context, table in task.contexts:
        yield from (step.command for step in recipe_of(context, table).steps if isinstance(step, Run))
    for step in task.steps:
        yield step.instruction
        yield from _scripts(step)


def _scripts(step: HarborStep) -> Iterator[str]:
    places = [folder / "test.sh" for folder in step.tests]
    places += [step.solution / "solve.sh"] if step.solution else []
    places += [step.workdir / "setup.sh"] if step.workdir else []
    yield from (place.read_text(errors="replace") for place in places if place.is_file())


class Account(NamedTuple):
    """A user of a box."""

    uid: str
    gid: str
    home: str

    @property
    def words(self) -> str:
        """What runs the following command as this user."""
        groups = "--init-groups" if self.home != "/" else "--clear-groups"
        return f"/usr/bin/setpriv --reuid={self.uid} --regid={self.gid} {groups}"


async def account_of(shell: Shell, user: str | int) -> Account:
    """Look up a user by name or number, with or without a group, as ``USER`` of a Dockerfile has it.

    Raises:
        EnvError: The box has no such user.
    """
    name, _, group = str(user).partition(":")
    word = shlex.quote(name)
    script = (
        f"[ -x /usr/bin/setpriv ] && getent passwd {word} | cut -d: -f3,4,6; getent group {shlex.quote(group)} | cut -d: -f3"
    )
    outcome = await shell.run(script, wall_seconds=10)
    lines = outcome.text.splitlines()
    known = next((line.split(":") for line in lines if line.count(":") == 2), None)
    if known is None and not name.isdigit():
        raise EnvError(f"the box has no user {name}, or no setpriv (util-linux) to become it")
    uid, gid, home = known or [name, "0", "/"]
    found = next((line for line in lines if line.isdigit()), group)
    return Account(uid, found if group else gid, home)
