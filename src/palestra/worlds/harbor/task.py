"""A Harbor task as data: the folder, its configuration, and one ``HarborStep`` per instruction.

A task without ``[[steps]]`` has one step. So the code that plays and grades tasks knows only steps.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from palestra.worlds.harbor.schema import Agent, Artifact, Config, Environment, Healthcheck, Verifier

__all__ = ["HarborStep", "HarborTask", "files_below", "identity_of", "tree_digest"]


_PIECE = 2**20


@dataclass(frozen=True, kw_only=True)
class HarborStep:
    """One instruction and its verifier. What a step does not set is the task's."""

    name: str
    """Empty for the only step of a task without ``[[steps]]``."""
    instruction: str
    tests: tuple[Path, ...]
    """Folders whose files are copied to ``/tests``, in this order."""
    solution: Path | None
    """The folder with ``solve.sh``."""
    workdir: Path | None
    """A folder whose files are copied to the working folder before the step."""
    agent: Agent
    verifier: Verifier
    separate: bool
    """Whether the verifier runs in a box of its own."""
    verifier_env: dict[str, str]
    verifier_environment: Environment
    """The environment of a separate verifier."""
    verifier_context: Path
    """The folder with the Dockerfile of a separate verifier; ``verifier_environment.docker_image`` comes first."""
    bundled_tests: bool
    """The image of the separate verifier brings the tests: nothing is copied to ``/tests``."""
    artifacts: tuple[Artifact, ...]
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None


@dataclass(frozen=True, kw_only=True)
class HarborTask:
    """A task folder that was read without a fault."""

    folder: Path
    name: str
    config: Config
    steps: tuple[HarborStep, ...]
    warnings: tuple[str, ...] = ()
    """Sentences about keys that Harbor ignores, and other things that are probably mistakes."""

    @property
    def environment(self) -> Path:
        """The folder with the Dockerfile and what it copies."""
        return self.folder / "environment"

    @property
    def identity(self) -> str:
        """Hash of what the environment is made of. Tasks with the same hash share one root file system."""
        return identity_of(self.environment, self.config.environment)

    @property
    def environments(self) -> dict[str, tuple[Path, Environment]]:
        """The identity → context and table of every environment that a box must have. Every file of them is read."""
        environments: dict[str, tuple[Path, Environment]] = {}
        for pair in self.contexts:
            environments.setdefault(identity_of(*pair), pair)
        return environments

    @property
    def contexts(self) -> list[tuple[Path, Environment]]:
        """Context and table of the agent's environment, then of those of separate verifiers."""
        verifiers = [(step.verifier_context, step.verifier_environment) for step in self.steps if step.separate]
        return [(self.environment, self.config.environment), *verifiers]

    @property
    def megabytes(self) -> float:
        """The size of all files, in MiB. A sparse file counts as if it were full."""
        return sum(status.st_size for _, status in files_below(self.folder)) / 2**20

    @property
    def digest(self) -> str:
        """Hash of the whole folder."""
        return tree_digest(self.folder)


def identity_of(context: Path, environment: Environment) -> str:
    """Return a hash of what the image of an environment is made of: the name of a finished image, and the context."""
    content = tree_digest(context) if context.is_dir() else ""
    return hashlib.sha256(f"{environment.docker_image or ''}\n{content}".encode()).hexdigest()


def files_below(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the relative path and status of everything below ``folder``, sorted, links unfollowed."""
    for above, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = os.path.join(above, name)
            yield os.path.relpath(path, folder), os.lstat(path)


def tree_digest(folder: Path) -> str:
    """Return a hash of paths, executable bits, link targets and contents below ``folder``. Times and owners do not count."""
    digest = hashlib.sha256()
    for path, status in sorted(files_below(folder), key=lambda entry: entry[0]):
        file_path = folder / path
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(file_path).encode()
            digest.update(f"link {path!r} {len(target)}\n".encode() + target)
        elif stat.S_ISREG(status.st_mode):
            digest.update(f"file {bool(status.st_mode & 0o100)} {path!r} {status.st_size}\n".encode())
            with file_path.open("rb") as file:
                while piece := file.read(_PIECE):  # a file may be larger than the memory
                    digest.update(piece)
        else:
            digest.update(f"folder {path!r} 0\n".encode())
    return digest.hexdigest()
