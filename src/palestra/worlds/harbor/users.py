"""The users of a task: whether it needs several, and how a command runs as one of them."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from palestra.errors import EnvError
from palestra.sandbox.shell import Shell
from palestra.sandbox.users import users_missing
from palestra.worlds.harbor.classes import is_root, recipe_of, users_of
from palestra.worlds.harbor.dockerfile import ImageRecipe, Run
from palestra.worlds.harbor.task import HarborStep, HarborTask

__all__ = ["Account", "account_of", "has_users", "needs_users"]

_COMMANDS = re.compile(
    r"\b(?:user(?:add|mod|del)|adduser|group(?:add|mod|del)|addgroup|chown|chgrp|runuser|su|sudo|gosu|setpriv|install\s+-[og])\b"
)

_NUMBER = re.compile("[0-9]{1,10}")


def needs_users(task: HarborTask) -> bool:
    """Return whether the task names a user other than root, or a script of it calls a program that is about users."""
    if any(not is_root(user) for user in _named(task)):
        return True
    return any(_COMMANDS.search(text) for text in _texts(task))


def has_users(task: HarborTask, recipe: ImageRecipe) -> bool:
    """Return whether the box that ``recipe`` describes has several users: the task needs them, and this machine has them."""
    return (needs_users(task) or bool(users_of(recipe))) and not users_missing()


def _named(task: HarborTask) -> Iterator[str | int | None]:
    for context, table in task.contexts:
        yield from users_of(recipe_of(context, table))
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
    yield from (script.read_text(errors="replace") for script in places if script.is_file())


class Account(NamedTuple):
    """A user of a box."""

    uid: str
    gid: str
    home: str
    groups: str = ""
    """The numbers of its groups, with commas between; empty if it has none. The agent may change the box's own list later."""

    @property
    def words(self) -> str:
        """What runs the following command as this user."""
        groups = f"--groups={self.groups}" if self.groups else "--clear-groups"
        return f"/usr/bin/setpriv --reuid={self.uid} --regid={self.gid} {groups}"


async def account_of(shell: Shell, user: str | int) -> Account:
    """Look up a user by name or number, with or without a group, as ``USER`` of a Dockerfile has it.

    Raises:
        EnvError: The box has no such user or group.
    """
    name, _, group = str(user).partition(":")
    word = shlex.quote(name)
    script = (
        f"[ -x /usr/bin/setpriv ] && getent passwd {word} | cut -d: -f3,4,6; getent group {shlex.quote(group)} | cut -d: -f3; "
        f"echo groups=$(id -G {word} 2>/dev/null)"
    )
    outcome = await shell.run(script, wall_seconds=10)
    lines = outcome.text.splitlines()
    fields = next((line.split(":") for line in lines if line.count(":") == 2), None)
    if fields is None and not name.isdigit():
        raise EnvError(f"the box has no user {name}, or no setpriv (util-linux) to become it")
    uid, gid, home = fields or [name, "0", "/"]
    gid = next((line for line in lines if line.isdigit()), group) if group else gid
    groups = next((line.removeprefix("groups=").split() for line in lines if line.startswith("groups=")), [])
    account = Account(uid, gid, home, ",".join(groups if fields else []))
    if not all(_NUMBER.fullmatch(number) for number in (uid, gid, *groups)):  # they become words of a command
        raise EnvError(f"the box has no user {user}: its numbers are {account.uid!r} and {account.gid!r}")
    return account
