"""Run the verifier of a step in a box, and return the rewards that it has written.

``shared``    in the agent's own box, as Harbor does by default. The agent could have replaced programs that the verifier uses.
              A new shell starts the verifier, unless processes of the agent still run, which a new shell would end.
``separate``  in a second box, which gets only ``/logs/artifacts`` and the declared artifacts.
``clean``     in a second box of the agent's environment as it was built, which gets only the working folder. Harbor has no such
              mode.

Whatever keeps the verifier from giving a reward is a ``GraderError``, never a reward of 0. The exit code means nothing.
"""

import fnmatch
import posixpath
import shlex
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from palestra.errors import GraderError, InfrastructureError
from palestra.sandbox.layers import NewFile, files_of
from palestra.sandbox.shell import Shell
from palestra.worlds.harbor.dockerfile import DEFAULT_PATH
from palestra.worlds.harbor.rewards import REWARD_JSON, REWARD_TEXT, read_rewards
from palestra.worlds.harbor.schema import Artifact
from palestra.worlds.harbor.users import Account

__all__ = ["LOGS", "artifacts_of", "assignments", "run_verifier", "startup_files_of", "work_folder_of"]

LOGS = ("logs/agent", "logs/verifier", "logs/artifacts")
_STDOUT = "logs/verifier/test-stdout.txt"
_SHOWN = 400
_RC_FILE, _FORK_FILE = "etc/bash.bashrc", ".palestra-fork"
"""What Debian's bash reads in any case, and what a forked session brings along."""
_ENVIRONMENT = {
    "PATH": DEFAULT_PATH,
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}


async def run_verifier(
    shell: Shell,
    tests: Iterable[Path],
    workdir: str,
    variables: Mapping[str, str],
    seconds: float,
    account: Account | None = None,
) -> dict[str, float]:
    """Copy ``tests`` to ``/tests``, run ``/tests/test.sh`` as ``account``, or as the shell's user, and return the rewards."""
    try:
        _prepare(shell, [file for folder in tests for file in files_of(folder, "tests")])
    except (OSError, InfrastructureError) as error:
        raise GraderError(f"the verifier could not be copied into the box: {error}") from None
    outcome = await shell.run(_command(workdir, variables, account), wall_seconds=seconds)
    if outcome.running:
        await shell.interrupt()
        if outcome.replaced:
            raise GraderError("another program has replaced the shell in which the verifier was started")
        raise GraderError(f"the verifier did not end within {seconds:g} s (verifier.timeout_sec)")
    if outcome.ended:
        raise GraderError(f"the verifier ended the box{f': {outcome.killed_by}' if outcome.killed_by else ''}")
    try:
        return read_rewards(shell.fetch)
    except GraderError as error:
        raise GraderError(f"{error}. {_last_words(shell)}") from None


def _command(workdir: str, variables: Mapping[str, str], account: Account | None) -> str:
    """Return a command that starts the tests with ``variables`` alone.

    In POSIX mode ``trap`` and ``exec`` are the shell's own, even if the agent has defined functions of these names. ``exec -c``
    drops the variables and functions that the agent has exported. A word with a backslash is no alias.
    """
    given = {**_ENVIRONMENT, **({"HOME": account.home} if account else {}), **variables}
    become = account.words if account else ""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in given.items())
    script = f"{exports}cd {shlex.quote(workdir)} 2>/dev/null || cd /\nexec /tests/test.sh"
    words = f"( \\exec -c {become} /bin/sh -c {shlex.quote(script)} ) > /{_STDOUT} 2>&1 < /dev/null"
    return f"POSIXLY_CORRECT=1\n\\trap - DEBUG ERR EXIT\n{words}\n\\unset POSIXLY_CORRECT"


def assignments(variables: Mapping[str, str]) -> str:
    """Return words that run the following command with ``variables``."""
    return " ".join(["env", *(f"{name}={shlex.quote(value)}" for name, value in variables.items())])


def _prepare(shell: Shell, tests: list[NewFile]) -> None:
    """Put the tests where nothing of the agent's stands, and remove rewards that the agent may have written."""
    if tests:
        shell.move_away("tests")
    for folder in ("logs", *LOGS):
        if not _is_folder(shell, folder):
            shell.move_away(folder)
    for path in (REWARD_JSON, REWARD_TEXT, _STDOUT):
        shell.move_away(path)
    runnable = [file._replace(mode=file.mode | 0o111) if file.path == "tests/test.sh" else file for file in tests]
    shell.put([*runnable, NewFile(_STDOUT)])


def _is_folder(shell: Shell, path: str) -> bool:
    above, _, name = path.rpartition("/")
    return any(other == name and stat.S_ISDIR(mode) for other, mode in shell.names_in(above))


def _last_words(shell: Shell) -> str:
    try:
        text = shell.fetch(_STDOUT).decode(errors="replace").strip()
    except OSError:
        text = ""
    return f"Its output ends with: {text[-_SHOWN:]}" if text else "It printed nothing"


def artifacts_of(shell: Shell, artifacts: Iterable[Artifact], workdir: str) -> list[NewFile]:
    """Return what a separate verifier gets from the agent's box. Links that could lead elsewhere are left out."""
    files: dict[str, NewFile] = {}
    for artifact in (Artifact(source="/logs/artifacts"), *artifacts):
        path = posixpath.normpath(posixpath.join(workdir, artifact.source)).strip("/")
        for file in _copied(shell, path):
            if _stays_inside(file, path) and not _is_excluded(file.path.removeprefix(path).strip("/"), artifact.exclude):
                files[file.path] = file
    return list(files.values())


def _is_excluded(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a pattern names the file, or a folder above it, by its name or by its path below the artifact.

    As in Harbor, an artifact that is itself a file has no path below, and is never excluded.
    """
    parts = path.split("/") if path else []
    names = {*parts, *("/".join(parts[:count]) for count in range(1, len(parts) + 1))}
    return any(fnmatch.fnmatchcase(name, pattern.strip("/")) for pattern in patterns for name in names)


def startup_files_of(shell: Shell) -> list[NewFile]:
    """Take away the files that a new shell would execute when it starts, and return those that belong to the system.

    The shell must have been stopped.
    """
    kept = _copied(shell, _RC_FILE)
    try:
        for path in (_RC_FILE, _FORK_FILE):
            shell.move_away(path)
    except OSError as error:
        raise GraderError(f"the verifier's shell cannot start without files of the agent: {error}") from None
    return kept


def work_folder_of(shell: Shell, workdir: str) -> list[NewFile]:
    """Return the working folder of the agent's box."""
    return [file for file in _copied(shell, workdir.strip("/")) if _stays_inside(file, workdir.strip("/"))]


def _copied(shell: Shell, path: str) -> list[NewFile]:
    if not path:
        raise GraderError("the verifier gets no copy of a whole file system: name a folder below /")
    try:
        return shell.copy_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise GraderError(f"/{path} cannot be copied to the verifier: {error}") from None


def _stays_inside(file: NewFile, folder: str) -> bool:
    """Return whether ``file`` is no link, or one that cannot lead to the verifier's own files."""
    return not file.link or (file.path != folder and not file.link.startswith("/") and ".." not in file.link.split("/"))
