"""What to type to install an extra follows from how this copy was installed."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from palestra.foundation import installation
from palestra.foundation.installation import how_to_install


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


@pytest.mark.parametrize(
    ("name", "info", "command"),
    [
        ("a check out", {"dir_info": {"editable": True}}, "pip install --editable '{path}[train]'"),
        ("a check out", {"dir_info": {"editable": False}}, "pip install '{path}[train]'"),
        ("palestra-0.1.0-py3-none-any.whl", {"archive_info": {}}, "pip install 'palestra[train] @ {url}'"),
    ],
)
def test_a_copy_from_a_folder_or_a_wheel(
    name: str, info: dict[str, Any], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.touch() if path.suffix else path.mkdir()
    url = path.as_uri()
    assert installed_from(monkeypatch, {"url": url, **info}) == command.format(path=path, url=url)


def test_a_copy_from_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = {"url": "https://git.example/palestra", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
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
