"""The map on the design page names the layers of pyproject.toml, in their order."""

import re
import tomllib

from tests.docs.test_pages import ROOT


def layers(contract: str) -> list[set[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (found,) = (one for one in settings["contracts"] if one["name"] == contract)
    return [{name.rpartition(".")[2] for name in row.split(" | ")} for row in found["layers"]]


def drawn(number: int) -> list[set[str]]:
    """The rows of a map on the page. An indented line continues the row above it."""
    page = (ROOT / "docs" / "design" / "index.md").read_text()
    block = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[number]
    rows = re.sub(r"\n  (?=\S)", "\n~", block).splitlines()
    found: list[set[str]] = []
    for row in rows:
        names = set(re.findall(r"\w+", re.split(r" {3,}", row.lstrip("~"))[0]))
        if row.startswith("~"):
            found[-1] |= names
        else:
            found.append(names)
    return found


def test_the_map_shows_the_layers() -> None:
    assert drawn(0) == layers("imports only fall")


def test_the_map_of_training_shows_its_layers() -> None:
    assert drawn(1) == layers("inside training, imports only fall")
