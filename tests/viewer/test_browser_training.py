"""The curves of a training run in a real browser, and the episodes behind them."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Position, expect
from tests.viewer.browsing import HOSTILE, Watched, episode, serving, watching, write_run

from palestra.foundation.encoding import encode_json
from palestra.trajectory import Trajectory
from palestra.viewer import export_runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]


CURVES = {"turns": 5, "entropy": 2, "loss": -1, HOSTILE: 1, "a/name/of/a/metric/that/is/longer/than/a/phone/is/wide": 1}
TRAINED = [{"step": step, "reward": step / 10, "success": step / 10, **CURVES} for step in range(8)]


def learned(step: int, member: int) -> Trajectory:
    """An episode that step ``step`` learned from, as the trainer keeps it."""
    one = episode(100 + step, member, ["guess", "guess again"], solved=bool(member))
    noted = tuple(msgspec.structs.replace(turn, info={**turn.info, "advantage": member - 0.5}) for turn in one.turns)
    return msgspec.structs.replace(one, turns=noted, info={"step": step})


@pytest.fixture(scope="module")
def training_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    kept = [learned(step, member) for step in (0, 4, 7) for member in (0, 1)]
    write_run(folder, *kept)
    (folder / "metrics.jsonl").write_bytes(b"".join(encode_json(line) + b"\n" for line in TRAINED) + b'{"step": 8, "rew')
    (folder / "vocabulary.json").write_text('["zero", "one", "two"]')
    return folder


@pytest.fixture(scope="module")
def training_url(training_folder: Path) -> Iterator[str]:
    yield from serving(training_folder)


@pytest.fixture
def training(browser: Browser, training_url: str) -> Iterator[Watched]:
    for watched in watching(browser, training_url):
        watched.open(training_url)
        yield watched


@pytest.mark.gate
def test_a_training_run_opens_with_its_curves(training: Watched) -> None:
    page = training.page
    expect(page.locator(".chart")).to_have_count(4)
    expect(page.locator(".chart").first).to_contain_text("0.7 at step 7")
    expect(page.locator(".chart").first.locator(".point.kept")).to_have_count(3)
    page.get_by_label("another number").select_option("loss")
    expect(page.locator(".chart")).to_have_count(5)
    expect(page).to_have_url(re.compile("show=loss"))


def test_the_curves_fit_a_phone(browser: Browser, training_url: str) -> None:
    for watched in watching(browser, training_url, width=390):
        watched.open(training_url)
        expect(watched.page.locator(".chart")).to_have_count(4)
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_from_a_point_of_a_curve_to_the_episodes_behind_it(training: Watched) -> None:
    page = training.page
    curve = page.locator(".chart[data-metric=success] svg")
    box = curve.bounding_box()
    assert box is not None
    place: Position = {"x": box["width"] * (46 + 4 / 7 * (400 - 46 - 12)) / 400, "y": 40}  # where step 4 of 0 to 7 stands
    curve.hover(position=place)
    expect(page.locator(".chart[data-metric=success]")).to_contain_text("0.4 at step 4")
    curve.click(position=place)
    expect(page).to_have_url(re.compile(r"#/r/0\?step=4$"))
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_text("all 7 numbers of step 4")).to_be_visible()
    page.get_by_role("link", name="step 7 →").click()
    expect(page).to_have_url(re.compile(r"step=7$"))
    page.get_by_role("link", name="curves").click()
    expect(page.locator(".marked")).to_have_count(4)


def test_a_step_without_episodes_says_so(training: Watched, training_url: str) -> None:
    training.open(f"{training_url}#/r/0?step=3")
    expect(training.page.locator("main")).to_contain_text("The run kept no episode of step 3.")
    expect(training.page.get_by_role("link", name="← step 0")).to_be_visible()


def test_tokens_of_training_are_coloured_by_what_the_trainer_recorded(training: Watched, training_url: str) -> None:
    page = training.page
    training.open(f"{training_url}#/r/0/e/1/tokens?colour=advantage")
    expect(page.locator(".legend")).to_contain_text("as recorded in each turn's info")
    expect(page.locator(".token").nth(1)).to_have_text("one")
    token = page.locator(".stretch.sampled .token").first
    token.hover()
    expect(page.locator(".readout")).to_contain_text("advantage 0.50")
    expect(token).to_have_css("background-color", "rgba(45, 210, 114, 0.75)")
    training.open(f"{training_url}#/r/0/e/0/tokens?colour=advantage")
    expect(token).to_have_css("background-color", "rgba(210, 67, 45, 0.75)")
    training.open(f"{training_url}#/r/0/e/1/tokens?colour=version")
    expect(page.locator(".legend")).to_contain_text("version 1")


def test_an_exported_training_run_has_its_curves(browser: Browser, training_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    export_runs([training_folder], file)
    context = browser.new_context(offline=True)
    watched = Watched(context.new_page(), file.as_uri())
    watched.open(file.as_uri())
    expect(watched.page.locator(".chart")).to_have_count(4)
    watched.open(file.as_uri() + "#/r/0/e/0/tokens")
    expect(watched.page.locator(".token").first).to_have_text("zero")
    watched.assert_clean()
    context.close()
