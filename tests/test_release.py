"""The version from tags, and what the workflow of a release may do."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=test", "-c", "user.email=test@example.invalid", "-c", "tag.gpgSign=false"]
    return subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def version(folder: Path) -> str:
    command = [sys.executable, "-m", "hatchling", "version"]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_version_is_the_tag_and_a_source_without_tags_builds(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    assert version(tmp_path) == "0.1.0.dev0"  # a folder that is no clone
    commit = ("commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", "more")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "pyproject.toml")
    git(tmp_path, *commit)
    head = git(tmp_path, "rev-parse", "--short=7", "HEAD")
    assert re.fullmatch(rf"0\.1\.0\.dev\d+\+g{head}[0-9a-f]*", version(tmp_path))  # a clone without tags
    git(tmp_path, "tag", "v1.2.3")
    git(tmp_path, "tag", "nightly-2")
    assert version(tmp_path) == "1.2.3"
    git(tmp_path, *commit)
    assert re.fullmatch(r"1\.2\.4\.dev1\+g[0-9a-f]{7,}", version(tmp_path))
    git(tmp_path, "tag", "v2.0.0rc1")
    assert version(tmp_path) == "2.0.0rc1"
