"""The version from tags, the workflow and the container files."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CONTAINERS = sorted((ROOT / "deploy" / "container").glob("*.Dockerfile"))


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


def test_only_the_publishing_job_may_ask_for_an_identity() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert workflow["permissions"] == {}
    assert [name for name, job in workflow["jobs"].items() if "id-token" in job["permissions"]] == ["publish"]
    used = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"[\w./-]+@[\w./-]+", one) for one in used)
    assert "secrets." not in json.dumps(workflow)


def instructions(file: Path) -> list[tuple[str, str]]:
    """The instructions of a container file, with continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", file.read_text()))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line]


KNOWN = {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.name)
def test_container_files_pin_their_base_drop_root_and_leave_no_caches(file: Path) -> None:
    found = instructions(file)
    assert {name for name, _ in found} <= KNOWN
    [(first, base)] = [one for one in found if one[0] == "FROM"]
    assert found[0] == (first, base)
    assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", base), "a tag with a version"
    for name, line in found:
        if name == "RUN" and "apt-get install" in line:
            assert "--no-install-recommends" in line
            assert "rm -rf /var/lib/apt/lists/*" in line
            packages = line.partition("--no-install-recommends")[2].partition("&&")[0].split()
            assert all("=" in package for package in packages), packages
        if name == "RUN" and "pip install" in line:
            assert "--no-cache-dir" in line
            assert "--constraint" in line
        if name in ("ENTRYPOINT", "CMD"):
            json.loads(line)  # the form without a shell, so that signals arrive
    users = [line for name, line in found if name == "USER"]
    assert users
    assert users[-1] != "root"
    for copied in (line.split()[:-1] for name, line in found if name == "COPY"):
        assert all((ROOT / one).exists() or one.startswith("dist/") for one in copied)


def test_the_papers_of_the_repository_are_there() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert {"title", "authors", "license", "message"} <= cited.keys()
    for name in ("CODE_OF_CONDUCT.md", "SECURITY.md", ".github/CODEOWNERS", ".github/PULL_REQUEST_TEMPLATE.md"):
        assert (ROOT / name).stat().st_size > 100
    about = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.md").read_text().split("---")[1])
    assert about["name"] == "Bug"
