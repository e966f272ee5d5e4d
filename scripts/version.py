"""The version of the package, for the build: hatchling runs this file and takes ``version``.

A commit with the tag ``v1.2.3`` is version 1.2.3. The fourth commit after it is 1.2.4.dev4+g0123abc. A clone without tags still
builds, as ``FIRST``.dev0 with the commit behind it. A source distribution carries its version in PKG-INFO.
"""

import re
import subprocess
from pathlib import Path

FIRST = "0.1.0"
"""The release that ``main`` leads to while no tag exists."""


def find_version(root: Path) -> str:
    """Return the version of the source tree at ``root``."""
    carried = root / "PKG-INFO"
    if carried.is_file():
        found = re.search(r"^Version: (\S+)$", carried.read_text(encoding="utf-8"), re.MULTILINE)
        if found is None:
            raise ValueError(f"{carried} has no line Version")
        return found[1]
    described = _git(root, "describe", "--tags", "--long", "--match", "v[0-9]*")
    if described is None:
        commit = _git(root, "rev-parse", "--short=7", "HEAD")
        return f"{FIRST}.dev0" + (f"+g{commit}" if commit else "")
    tag, distance, commit = described.rsplit("-", 2)
    release = tag.removeprefix("v")
    return release if distance == "0" else f"{_after(release)}.dev{distance}+{commit}"


def _after(release: str) -> str:
    """The next release: a development version must sort behind the release that it follows."""
    *front, last = re.match(r"\d+(?:\.\d+)*", release)[0].split(".")  # type: ignore[index]
    return ".".join([*front, str(int(last) + 1)])


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, or ``None`` where there is no repository of our own or no answer."""
    if not (root / ".git").exists():
        return None
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


version = find_version(Path(__file__).resolve().parents[1])
