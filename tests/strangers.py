"""What a stranger, or an accident, may put in the place of a file in a folder."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from palestra.errors import PalestraError

__all__ = ["KINDS", "SECRET", "Outside", "is_link", "refused_or_done"]

SECRET = b"SECRET: one line without a line break"


class Outside:
    """Files of the user beside the stranger's folder. ``check`` fails if one was changed, removed or added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "deep").mkdir(parents=True)
        (folder / "secret").write_bytes(SECRET)
        (folder / "deep" / "secret").write_bytes(SECRET)

    def check(self) -> None:
        files = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}
        assert {name: path.read_bytes() for name, path in files.items()} == {"secret": SECRET, "deep/secret": SECRET}

    def check_not_in(self, folder: Path) -> None:
        """Fail if a file in ``folder`` has taken over what is outside."""
        for above, _, names in os.walk(folder):
            for path in (Path(above, name) for name in names):
                if not path.is_symlink() and path.is_file() and path.stat().st_nlink == 1:
                    assert SECRET not in path.read_bytes(), path


def _linked(path: Path, target: Path) -> None:
    _cleared(path)
    path.symlink_to(target)


def _cleared(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _hard_linked(path: Path, outside: Outside) -> None:
    _cleared(path)
    os.link(outside.folder / "secret", path)


def _folder(path: Path, _: Outside) -> None:
    _cleared(path)
    path.mkdir()


def _pipe(path: Path, _: Outside) -> None:
    _cleared(path)
    os.mkfifo(path)


def _same_content_behind_link(path: Path, outside: Outside) -> None:
    """The file as it should be, behind a link: the most innocent one."""
    if path.is_file():
        copy = outside.folder.with_name("moved")
        copy.write_bytes(path.read_bytes())
        _linked(path, copy)
    else:
        _linked(path, outside.folder / "deep")


def _written(content: Callable[[bytes], bytes]) -> Callable[[Path, Outside], None]:
    def put(path: Path, _: Outside) -> None:
        data = content(path.read_bytes() if path.is_file() else b"")
        _cleared(path)
        path.write_bytes(data)

    return put


KINDS: dict[str, Callable[[Path, Outside], None]] = {
    "link to a file": lambda path, outside: _linked(path, outside.folder / "secret"),
    "link to nothing": lambda path, outside: _linked(path, outside.folder / "new"),
    "link to a folder": lambda path, outside: _linked(path, outside.folder / "deep"),
    "relative link": lambda path, outside: _linked(path, Path(os.path.relpath(outside.folder / "secret", path.parent))),
    "link to itself": lambda path, _: _linked(path, path),
    "link to the same content": _same_content_behind_link,
    "hard link": _hard_linked,
    "folder": _folder,
    "pipe": _pipe,
    "half": _written(lambda data: data[: len(data) // 2]),
    "empty": _written(lambda _: b""),
    "garbage": _written(lambda _: bytes(range(256)) * 3 + b"\n" + b"\xff\0"),
}


def is_link(kind: str) -> bool:
    """Whether ``kind`` puts a symbolic link in the place of the file."""
    return "link" in kind and kind != "hard link"


def refused_or_done(work: Callable[[], object]) -> str:
    """Return what the refusal says, empty if there is none. Anything but an error in words fails the test."""
    try:
        work()
    except PalestraError as error:
        return str(error)
    return ""
