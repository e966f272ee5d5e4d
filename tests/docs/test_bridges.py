"""Every bridge has locked versions and is run every night, and every result belongs to a bridge or an example."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
BRIDGES = {file.stem for file in (ROOT / "constraints").glob("*.txt") if "# read: " not in file.read_text()}


def test_every_bridge_has_locked_versions() -> None:
    assert {file.stem for file in (ROOT / "constraints" / "locked").glob("*.txt")} == BRIDGES


def test_results_belong_to_bridges_and_examples() -> None:
    results = ROOT / "constraints" / "results"
    assert {file.stem for file in results.glob("*.json")} <= BRIDGES
    assert {file.stem for file in (results / "examples").glob("*.json")} <= {
        file.stem for file in (ROOT / "examples").glob("*.py")
    }


def test_every_bridge_runs_every_night() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]
    assert set(jobs["bridges"]["strategy"]["matrix"]["bridge"]) == BRIDGES
    groups = {*jobs["nightly"]["strategy"]["matrix"]["group"], "bridges"}
    script = (ROOT / ".ci" / "nightly").read_text()
    assert groups == {
        line.removeprefix("group_").partition("(")[0] for line in script.splitlines() if line.startswith("group_")
    }
