"""Git repositories with a history, and questions about it. The objects are written here, so every hash is known."""

import hashlib
import zlib
from typing import NamedTuple

import numpy as np

from palestra.envs.terminal.grading import Lines, Text
from palestra.envs.terminal.scene import HOME, Scene, draw, sample
from palestra.envs.terminal.texts import WORDS
from palestra.sandbox.layers import NewFile

__all__ = ["git"]

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
        whole = f"{kind} {len(content)}\0".encode() + content
        name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        self.objects[name] = whole
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
        found = [NewFile(f"{top}/{name}", text.encode()) for name, text in self.commits[-1].files.items()]
        for name, whole in self.objects.items():
            found.append(NewFile(f"{top}/.git/objects/{name[:2]}/{name[2:]}", zlib.compress(whole), 0o444))
        found.append(NewFile(f"{top}/.git/HEAD", b"ref: refs/heads/main\n"))
        found.append(NewFile(f"{top}/.git/config", _CONFIG.encode()))
        found.append(NewFile(f"{top}/.git/refs/heads/main", f"{self.commits[-1].hash}\n".encode()))
        return found


def git(rng: np.random.Generator, level: int) -> Scene:
    """Find the commit of a change; restore a deleted file; find who leaked a password, and when it was removed."""
    return (_changed, _deleted, _leaked)[level](rng)


def _grown(rng: np.random.Generator, commits: int) -> tuple[_Repository, list[str]]:
    repository = _Repository("project")
    people = sample(rng, WORDS, 4)
    names = sample(rng, WORDS, 5)
    files = {f"{name}.txt": f"{draw(rng, WORDS)}\n" for name in names}
    files["settings.ini"] = "timeout = 30\nretries = 3\n"
    repository.commit(files, "First version", draw(rng, people))
    for _ in range(commits):
        _change(rng, repository, people, names)
    return repository, people


def _change(rng: np.random.Generator, repository: _Repository, people: list[str], names: list[str]) -> None:
    files = dict(repository.commits[-1].files)
    name = f"{draw(rng, names)}.txt"
    files[name] = files.get(name, "") + f"{draw(rng, WORDS)} {int(rng.integers(1000))}\n"
    repository.commit(files, f"Add to {name}", draw(rng, people))


def _setup(repository: _Repository) -> str:
    # Without a log, which would contain the time.
    return f"(cd {repository.folder} && git -c core.logAllRefUpdates=false reset -q)"


def _changed(rng: np.random.Generator) -> Scene:
    repository, people = _grown(rng, int(rng.integers(4, 15)))
    value = int(rng.integers(40, 900))
    files = dict(repository.commits[-1].files)
    files["settings.ini"] = files["settings.ini"].replace("timeout = 30", f"timeout = {value}")
    repository.commit(files, "Tidy up", draw(rng, people))
    wanted = repository.commits[-1].hash
    names = [name[:-4] for name in files if name.endswith(".txt")]
    for _ in range(int(rng.integers(3, 15))):
        _change(rng, repository, people, names)
    goal = (
        f"In the git repository project, one commit set the timeout in settings.ini to {value}. Write the full hash of this "
        "commit to answer.txt in your home folder."
    )
    solve = "git -C project log -1 --format=%H -- settings.ini > answer.txt"
    return Scene(goal, repository.written(), [Lines("answer.txt", [wanted])], [solve], _setup(repository))


def _deleted(rng: np.random.Generator) -> Scene:
    repository, people = _grown(rng, int(rng.integers(5, 15)))
    files = dict(repository.commits[-1].files)
    lost = draw(rng, sorted(name for name in files if name.endswith(".txt")))
    content = files.pop(lost)
    repository.commit(files, "Clean up", draw(rng, people))
    names = [name[:-4] for name in files if name.endswith(".txt")]
    for _ in range(int(rng.integers(3, 12))):
        _change(rng, repository, people, names)
    goal = (
        f"In the git repository project, the file {lost} was deleted at some time. Restore the file, with its last content, "
        "to its place in the working tree."
    )
    solve = f"cd project && git checkout -q $(git rev-list -n 1 HEAD -- {lost})^ -- {lost}"

    return Scene(goal, repository.written(), [Text(f"project/{lost}", content)], [solve], _setup(repository))


def _leaked(rng: np.random.Generator) -> Scene:
    repository, people = _grown(rng, int(rng.integers(6, 18)))
    secret = "-".join(sample(rng, WORDS, 3))
    decoys = ["-".join(sample(rng, WORDS, 3)) for _ in range(2)]
    place = draw(rng, sorted(name for name in repository.commits[-1].files if name.endswith(".txt")))
    before = dict(repository.commits[-1].files)
    who = draw(rng, people)
    repository.commit({**before, place: before[place] + f"password = {secret}\n"}, "Notes", who)
    names = [name[:-4] for name in before if name.endswith(".txt") and name != place]
    for number in range(int(rng.integers(2, 8))):
        _change(rng, repository, people, names)
        if number < len(decoys):
            files = dict(repository.commits[-1].files)
            files[f"{names[0]}.txt"] += f"passphrase hint: {decoys[number]}\n"
            repository.commit(files, "More notes", draw(rng, people))
    files = dict(repository.commits[-1].files)
    files[place] = files[place].replace(f"password = {secret}\n", "")
    repository.commit(files, "Notes again", draw(rng, people))
    removed = repository.commits[-1].hash
    for _ in range(int(rng.integers(2, 8))):
        _change(rng, repository, people, names)
    goal = (
        "In the git repository project, a line 'password = …' was committed to a file and removed again later. Write three "
        "lines to answer.txt in your home folder: the password, the e-mail address of the author who added it, and the full "
        "hash of the commit that removed it."
    )
    solve = (
        "cd project; git log -p --all | sed -n 's/^+password = //p' | head -1 > ../answer.txt; "
        "git log -S'password = ' --format=%ae | tail -1 >> ../answer.txt; "
        "git log -S'password = ' --format=%H | head -1 >> ../answer.txt"
    )
    expected = [secret, f"{who}@example.org", removed]
    return Scene(goal, repository.written(), [Lines("answer.txt", expected)], [solve], _setup(repository))
