"""Git repositories with a history, and questions about it. The objects are written here, so every hash is known."""

import hashlib
import zlib
from typing import NamedTuple

import numpy as np

from palestra.sandbox.layers import NewFile
from palestra.worlds.terminal.grading import ExactText, Lines
from palestra.worlds.terminal.scene import HOME, Scene, draw, sample
from palestra.worlds.terminal.texts import WORDS

__all__ = ["git"]

_KEYS = ("cache", "delay", "depth", "port", "retries", "timeout", "workers")
"""The keys of settings.ini."""
_FIRST = 1_700_000_000
_CONFIG = (
    "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[user]\n\tname = Agent\n\temail = agent@box\n"
)


class _Commit(NamedTuple):
    hash: str
    files: dict[str, str]
    author: str


class _Repository:
    """A repository with one branch, as the files of its ``.git`` folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.objects: dict[str, bytes] = {}
        self.commits: list[_Commit] = []

    def _store(self, kind: str, content: bytes) -> str:
        stored = f"{kind} {len(content)}\0".encode() + content
        name = hashlib.sha1(stored, usedforsecurity=False).hexdigest()
        self.objects[name] = stored
        return name

    def commit(self, files: dict[str, str], message: str, author: str) -> None:
        """Add a commit with these files at the top level."""
        entries = b"".join(
            f"100644 {name}\0".encode() + bytes.fromhex(self._store("blob", text.encode()))
            for name, text in sorted(files.items())
        )
        tree = self._store("tree", entries)
        parent = f"parent {self.commits[-1].hash}\n" if self.commits else ""
        at = f"{_FIRST + 3600 * len(self.commits)} +0000"
        who = f"{author.capitalize()} <{author}@example.org> {at}"
        body = f"tree {tree}\n{parent}author {who}\ncommitter {who}\n\n{message}\n"
        self.commits.append(_Commit(self._store("commit", body.encode()), dict(files), author))

    def written(self) -> list[NewFile]:
        """Return the files of the repository and of its working tree. The index is left out: ``git reset`` writes it."""
        top = f"{HOME}/{self.folder}"
        new_files = [NewFile(f"{top}/{name}", text.encode()) for name, text in self.commits[-1].files.items()]
        for name, stored in self.objects.items():
            new_files.append(NewFile(f"{top}/.git/objects/{name[:2]}/{name[2:]}", zlib.compress(stored), 0o444))
        new_files.append(NewFile(f"{top}/.git/HEAD", b"ref: refs/heads/main\n"))
        new_files.append(NewFile(f"{top}/.git/config", _CONFIG.encode()))
        new_files.append(NewFile(f"{top}/.git/refs/heads/main", f"{self.commits[-1].hash}\n".encode()))
        return new_files


def git(rng: np.random.Generator, level: int) -> Scene:
    """Find the commit of a change; the last content of a deleted file; who leaked a password, and when it was removed.

    A history has at least 20 events of the kind that a task asks about, and the goal names one of them.
    """
    return (_changed, _deleted, _leaked)[level](rng)


def _event_count(rng: np.random.Generator) -> int:
    return int(rng.integers(20, 29))


def _setup(repository: _Repository) -> str:
    # Without a log, which would contain the time.
    return f"(cd {repository.folder} && git -c core.logAllRefUpdates=false reset -q)"


def _grow(rng: np.random.Generator, repository: _Repository, people: list[str], names: list[str]) -> None:
    """Commit up to two additions to files of ``names``."""
    for _ in range(int(rng.integers(0, 3)) if names else 0):
        files = dict(repository.commits[-1].files)
        name = draw(rng, names)
        files[name] += f"{draw(rng, WORDS)} {int(rng.integers(1000))}\n"
        repository.commit(files, f"Add to {name}", draw(rng, people))


def _changed(rng: np.random.Generator) -> Scene:
    repository, people, names = _Repository("project"), sample(rng, WORDS, 4), [f"{name}.txt" for name in sample(rng, WORDS, 4)]
    values = dict.fromkeys(_KEYS, 100)
    texts = {name: f"{draw(rng, WORDS)}\n" for name in names}
    repository.commit({**texts, "settings.ini": _settings(values)}, "First version", draw(rng, people))
    changes: list[tuple[str, str]] = []
    for value in sample(rng, range(101, 1000), _event_count(rng)):
        key = draw(rng, _KEYS)
        values[key] = value
        repository.commit({**repository.commits[-1].files, "settings.ini": _settings(values)}, "Tidy up", draw(rng, people))
        changes.append((f"{key} = {value}", repository.commits[-1].hash))
        _grow(rng, repository, people, names)
    line, wanted = draw(rng, changes)
    goal = (
        f"In the git repository project, one commit set {line.replace(' =', ' in settings.ini to')}. Write the full hash of "
        "this commit to answer.txt in your home folder."
    )
    solve = f"git -C project log -S'{line}' --format=%H -- settings.ini | tail -1 > answer.txt"
    return Scene(goal, repository.written(), [Lines("answer.txt", [wanted])], [solve], _setup(repository))


def _settings(values: dict[str, int]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in values.items())


def _deleted(rng: np.random.Generator) -> Scene:
    repository, people, count = _Repository("project"), sample(rng, WORDS, 4), _event_count(rng)
    names = [f"{name}.txt" for name in sample(rng, WORDS, count + 3)]
    repository.commit({name: f"{draw(rng, WORDS)}\n" for name in names}, "First version", draw(rng, people))
    contents: dict[str, str] = {}
    for name in names[:count]:
        _grow(rng, repository, people, names[len(contents) :])
        files = dict(repository.commits[-1].files)
        contents[name] = files.pop(name)
        repository.commit(files, "Clean up", draw(rng, people))
    _grow(rng, repository, people, names[count:])
    lost = draw(rng, names[:count])
    goal = (
        f"In the git repository project, many files were deleted, among them {lost}. Write the content that {lost} had just "
        "before it was deleted to answer.txt in your home folder."
    )
    solve = f"cd project && git show $(git rev-list -n 1 HEAD -- {lost})^:{lost} > ../answer.txt"
    return Scene(goal, repository.written(), [ExactText("answer.txt", contents[lost])], [solve], _setup(repository))


class _Leak(NamedTuple):
    path: str
    line: str
    author: str


def _leaked(rng: np.random.Generator) -> Scene:
    repository, people, names = _Repository("project"), sample(rng, WORDS, 9), [f"{name}.txt" for name in sample(rng, WORDS, 5)]
    repository.commit({name: f"{draw(rng, WORDS)}\n" for name in names}, "First version", draw(rng, people))
    leaks: dict[str, _Leak] = {}
    for service in sample(rng, WORDS, _event_count(rng)):
        leak = _Leak(draw(rng, names), f"password of {service} = {'-'.join(sample(rng, WORDS, 3))}\n", draw(rng, people))
        leaks[service] = leak
        files = repository.commits[-1].files
        repository.commit({**files, leak.path: files[leak.path] + leak.line}, "Notes", leak.author)
        _grow(rng, repository, people, names)
    removed: dict[str, str] = {}
    for service in sample(rng, list(leaks), len(leaks)):
        path, line, _ = leaks[service]
        files = repository.commits[-1].files
        repository.commit({**files, path: files[path].replace(line, "")}, "Notes again", draw(rng, people))
        removed[service] = repository.commits[-1].hash
    _grow(rng, repository, people, names)
    service = draw(rng, list(leaks))
    start, secret = leaks[service].line.split(" = ")
    goal = (
        f"In the git repository project, passwords were committed to files and removed again later, one of them in a line "
        f"'{start} = …'. Write three lines to answer.txt in your home folder: this password, the e-mail address of the author "
        "who added it, and the full hash of the commit that removed it."
    )
    solve = (
        f"cd project; git log -p --all | sed -n 's/^+{start} = //p' | head -1 > ../answer.txt; "
        f"git log -S'{start} = ' --format=%ae | tail -1 >> ../answer.txt; "
        f"git log -S'{start} = ' --format=%H | head -1 >> ../answer.txt"
    )
    expected = [secret.strip(), f"{leaks[service].author}@example.org", removed[service]]
    return Scene(goal, repository.written(), [Lines("answer.txt", expected)], [solve], _setup(repository))
