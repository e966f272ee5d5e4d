"""What to type to install an extra follows from how this copy was installed."""

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from palestra import installation
from palestra.installation import how_to_install

SOURCE = Path(installation.__file__).parent


def installed_from(monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None) -> str:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            return None if origin is None or name != "direct_url.json" else json.dumps(origin)

    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())
    monkeypatch.setattr(installation, "_installer", lambda: "pip")
    installation._origin.cache_clear()
    try:
        return how_to_install("train")
    finally:
        installation._origin.cache_clear()


@pytest.mark.parametrize("editable", [True, False])
def test_a_copy_from_a_folder(editable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a check out"
    folder.mkdir()
    said = installed_from(monkeypatch, {"url": folder.as_uri(), "dir_info": {"editable": editable}})
    assert said == f"pip install {'--editable ' if editable else ''}'{folder}[train]'"


def test_a_copy_from_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "palestra-0.1.0-py3-none-any.whl"
    wheel.touch()
    said = installed_from(monkeypatch, {"url": wheel.as_uri(), "archive_info": {}})
    assert said == f"pip install 'palestra[train] @ {wheel.as_uri()}'"


def test_a_copy_from_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = {
        "url": "https://git.example/palestra",
        "vcs_info": {"vcs": "git", "commit_id": "abc", "requested_revision": "main"},
    }
    assert installed_from(monkeypatch, origin) == "pip install 'palestra[train] @ git+https://git.example/palestra@abc'"


@pytest.mark.parametrize(
    "origin",
    [
        None,
        {"url": "file:///no/such/folder", "dir_info": {"editable": True}},
        {"url": "file:///no/such/palestra-0.1.0-py3-none-any.whl", "archive_info": {}},
    ],
    ids=["an index", "a folder that is gone", "a wheel that is gone"],
)
def test_a_copy_whose_origin_is_unknown_names_the_extra_and_the_page(
    origin: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = installed_from(monkeypatch, origin)
    assert said == 'install the extra "train" of palestra as docs/how-to/install.md says'
    assert (SOURCE.parents[1] / "docs/how-to/install.md").is_file()


def test_no_message_installs_palestra_by_its_name_alone() -> None:
    by_name = re.compile(r"pip install [^#\n]*?\bpalestra(\[|\b)(?! @|.* @ )")
    told = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*")
        if path.suffix in (".py", ".toml", ".txt", ".html", ".js")
        for line in path.read_text(encoding="utf-8").splitlines()
        if by_name.search(line)
    ]
    assert told == []
