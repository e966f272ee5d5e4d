"""A world of a stranger's package, which imports only what is open to authors: its ids, rows, panel and commands plug in."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.test_for_authors import closed_imports
from typer.testing import CliRunner

import palestra
from palestra import registry
from palestra.checking import check_env
from palestra.cli import app as commands
from palestra.cli.app import run_command
from palestra.suite.panels import freeze

PACKAGE = Path(__file__).parent / "stranger" / "own_garden"
ENTRY_POINTS = """\
[palestra.envs]
own_garden = own_garden.registration
[palestra.commands]
garden = own_garden.commands:app
"""


def installed(folder: Path, entry_points: str) -> None:
    """Install the package into ``folder``, with these entry points."""
    shutil.copytree(PACKAGE, folder / "own_garden")
    info = folder / "own_garden-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own_garden\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def forget_packages() -> None:
    commands._groups_of_others.cache_clear()
    commands._app.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "own_garden"]:
        del sys.modules[module]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    palestra.list_envs("game:GuessTheNumber*")  # so that Palestra's own ids are kept below
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))
    monkeypatch.setattr(registry, "_plugins_loaded", False)
    forget_packages()
    yield
    forget_packages()


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    installed(tmp_path, ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_package_imports_only_what_is_open_to_authors() -> None:
    assert [closed for file in PACKAGE.glob("*.py") for closed in closed_imports(file.read_text())] == []


@pytest.mark.usefixtures("garden")
def test_its_id_is_listed_without_importing_its_environment() -> None:
    assert [spec.description for spec in palestra.list_envs("garden")] == ["Give every plant its water."]
    assert "own_garden.env" not in sys.modules


@pytest.mark.usefixtures("garden")
def test_it_keeps_the_contract() -> None:
    report = check_env("garden:Beds-v0", n=20)
    assert report.ok, report


@pytest.mark.usefixtures("garden")
def test_an_evaluation_plays_each_row_once() -> None:
    report = palestra.evaluate(["garden:Beds-v0"], "oracle", n=50, progress=False)
    assert (report.suite.issued, report.suite.scored) == (20, 20)
    assert report.suite.success is not None
    assert report.suite.success.mean == pytest.approx(1.0)


@pytest.mark.usefixtures("garden")
def test_its_panel_is_frozen() -> None:
    from own_garden.env import panel_tasks  # type: ignore[import-not-found, unused-ignore]

    assert len({entry.sha256 for entry in freeze(panel_tasks())}) > 10


@pytest.mark.usefixtures("garden")
@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        (["--help"], "Commands of the package own_garden."),
        (["garden", "beds"], "20 beds"),
        (["garden", "beds", "--json"], '{"beds":20}'),
    ],
    ids=["help", "text", "json"],
)
def test_its_commands_are_shown_and_run(typed: list[str], printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(typed) == 0
    assert printed in capsys.readouterr().out


def test_a_group_of_commands_that_is_palestras_own_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "[palestra.commands]\nharbor = own_garden.commands:app\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(UserWarning, match="own_garden.commands:app are left out: harbor is a command of Palestra's own"):
        overview = CliRunner().invoke(commands.app_for(["--help"]), ["--help"]).stdout
    assert "Harbor tasks" in overview
    assert "own_garden" not in overview


def test_commands_that_fail_to_load_only_warn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "[palestra.commands]\ngarden = own_garden.nowhere:app\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(UserWarning, match=r"the commands of garden \(own_garden.nowhere:app\) failed to load: ModuleNotFound"):
        assert CliRunner().invoke(commands.app_for(["garden"]), ["garden"]).exit_code == 2
