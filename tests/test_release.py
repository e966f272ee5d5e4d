"""The version from tags, the bill of materials, the workflow and the container files."""

import importlib.util
import json
import re
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CONTAINERS = sorted((ROOT / "deploy" / "container").glob("*.Dockerfile"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=test", "-c", "user.email=test@example.invalid", "-c", "tag.gpgSign=false"]
    return subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path) -> None:
    git(folder, "commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", "more")


def test_the_version_is_the_tag_and_sorts_behind_it_afterwards(repository: Path) -> None:
    find = script("version").find_version
    head = git(repository, "rev-parse", "--short=7", "HEAD")
    assert find(repository) == f"0.1.0.dev0+g{head}"  # a clone without tags
    git(repository, "tag", "nightly")
    git(repository, "tag", "v1.2.3")
    assert find(repository) == "1.2.3"
    commit(repository)
    commit(repository)
    assert re.fullmatch(r"1\.2\.4\.dev2\+g[0-9a-f]{7,}", find(repository))
    git(repository, "tag", "v2.0.0rc1")
    assert find(repository) == "2.0.0rc1"


def test_a_source_distribution_carries_its_version_and_a_bare_folder_has_the_first(tmp_path: Path) -> None:
    find = script("version").find_version
    assert find(tmp_path) == "0.1.0.dev0"
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: palestra\nVersion: 3.1.4\n\nVersion: 9\n")
    assert find(tmp_path) == "3.1.4"


def test_the_bill_of_materials_lists_what_the_wheel_requires(tmp_path: Path) -> None:
    wheel = tmp_path / "palestra-1.0-py3-none-any.whl"
    lines = ["Name: palestra", "Version: 1.0", "License-Expression: Apache-2.0", "Requires-Dist: numpy>=1.26"]
    lines += ['Requires-Dist: torch>=2.6; extra == "hf"', 'Requires-Dist: palestra[hf]; extra == "train"']
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr("palestra-1.0.dist-info/METADATA", "\n".join(lines) + "\n\ntext\n")
    bill = script("sbom").bill(wheel)
    assert bill == script("sbom").bill(wheel)
    assert bill["metadata"]["component"]["version"] == "1.0"
    scopes = {part["name"]: part["scope"] for part in bill["components"]}
    assert scopes == {"numpy": "required", "torch": "optional"}
    assert all("version" in part for part in bill["components"])  # those of constraints.txt
    assert bill["dependencies"][0]["dependsOn"] == [part["bom-ref"] for part in bill["components"] if part["name"] == "numpy"]
    json.dumps(bill)


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
