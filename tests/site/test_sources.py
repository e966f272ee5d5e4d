"""What the site is built from: every public name has an entry in the API reference, every family an entry in the gallery."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of ``docs/site``, which import each other as scripts do."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    return importlib.import_module


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Any) -> None:
    api = site("api")
    pages: dict[str, str] = {}
    api.write(pages.__setitem__, ROOT / "src")
    whole = "\n".join(text for name, text in pages.items() if name.endswith(".md"))
    shown = {one for found in re.findall(r"^::: (\S+)$|\]\[([\w.]+)\]|\{ #([\w.]+) \}", whole, re.MULTILINE) for one in found}
    known = {module.name: module for module in api.modules(ROOT / "src")}
    assert len(known) > 300
    packages = {Path(name).stem for name in pages if name.startswith("api/")}
    missing = []
    for module in known.values():
        for name in module.names:
            target = api.home(name, module, known)
            if target not in shown and target not in known and target.removeprefix("palestra.") not in packages:
                missing.append(target)
    assert missing == []


@pytest.mark.slow
def test_no_module_with_public_names_is_left_out(site: Any) -> None:
    listed = {module.file for module in site("api").modules(ROOT / "src")}
    faces = {
        file
        for file in (ROOT / "src" / "palestra").rglob("*.py")
        if re.search(r"^__all__ = \[", file.read_text(), re.MULTILINE)
    }
    assert {file.relative_to(ROOT / "src").as_posix() for file in faces} == listed


def test_a_link_to_nothing_ends_the_build(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = site("stage")
    monkeypatch.setattr(stage, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("[gone](docs/gone.md)")
    with pytest.raises(SystemExit, match=r"README.md links to docs/gone.md"):
        stage.Stage(tmp_path / "out").page(tmp_path / "README.md")


def test_every_family_has_facts_and_every_fact_a_family(site: Any) -> None:
    gallery = site("gallery")
    found = gallery.families()
    for name in found:
        assert gallery.facts(name)["teaches"]
        assert gallery.facts(name)["kind"] in gallery.FILTERS["kind"]
    assert set(gallery.FACTS["families"]) <= set(found)
    with pytest.raises(KeyError, match=r"add \[families.Nothing\]"):
        gallery.facts("Nothing")
