"""The page in a real browser: every view, the keyboard, and text that would like to be obeyed."""

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Position, expect, sync_playwright

import palestra
from palestra.encoding import encode_json, floats, ints
from palestra.errors import Boundary
from palestra.registry import unregister
from palestra.trajectory import Completion, Failure, Image, Phase, Segment, Span, StopReason, Task, Text, Trajectory, Turn
from palestra.viewer import ViewerServer, export_page, export_runs, open_runs

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.browser

FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><svg onload=window.hacked=1>"
    "javascript:window.hacked=1 \u202etxt.exe\u2066 \x1b[31mred\x1b[0m \x00\u200b end"
)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fccfc0f01f0005050201b4ea2b5f0000000049454e44ae426082"
)


def segment(turns: int, length: int = 40) -> Segment:
    spans = tuple(Span(turn * length + length // 2, (turn + 1) * length, turn, turn) for turn in range(turns))
    sampled = sum(span.stop - span.start for span in spans)
    return Segment(ints(np.arange(turns * length)), spans, floats(np.linspace(-3, 0, sampled)))


def episode(seed: int, member: int, actions: list[str], *, solved: bool = True) -> Trajectory:
    turns = [Turn(f"observation {n}\n1 . 3\n. 2 .\n3 . 1", Completion(action)) for n, action in enumerate(actions)]
    turns[-1] = Turn(turns[-1].observation, Completion(actions[-1]), float(solved), {"success": solved})
    return Trajectory(
        Task("game:Demo-v0", seed),
        StopReason.TERMINATED,
        tuple(turns),
        (segment(len(actions)),),
        "over",
        group=seed,
        member=member,
    )


def hostile_episode() -> Trajectory:
    parts = (Text(HOSTILE), Image(PIXEL), Image(b"<svg onload='window.hacked=1'>", "image/svg+xml"))
    turns = (
        Turn(parts, Completion(HOSTILE, reasoning=HOSTILE), 1.0, {HOSTILE: HOSTILE}),
        Turn("x" * 1_000_000, Completion(f"<think>{HOSTILE}</think><tool_call>{HOSTILE}</tool_call>{HOSTILE}")),
    )
    failure = Failure(Boundary.ENV, Phase.STEP, HOSTILE, HOSTILE)
    return Trajectory(
        Task(HOSTILE, 9, params={HOSTILE: HOSTILE}),
        StopReason.ERROR,
        turns,
        (segment(2),),
        HOSTILE,
        {HOSTILE: HOSTILE},
        (failure,),
        HOSTILE,
        HOSTILE,
    )


EPISODES = [
    episode(0, 0, ["look", "go left", "take"]),
    episode(0, 1, ["look", "go right"], solved=False),
    episode(1, 0, ["<think>hm</think>wait", "needle in a haystack"]),
    hostile_episode(),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("run")
    (folder / "trajectories.jsonl").write_bytes(b"".join(encode_json(found) + b"\n" for found in EPISODES))
    (folder / "vocabulary.json").write_text('["<b>zero</b>", "one", "two"]')
    yield from serving(folder)


def serving(folder: Path) -> Iterator[str]:
    with ViewerServer(open_runs([folder])) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


TRAINED = [
    {
        "step": step,
        "reward": step / 10,
        "success": step / 10,
        "turns": 5 - step / 4,
        "entropy": 2 / (step + 1),
        "loss": -step,
        HOSTILE: 1,
    }
    for step in range(8)
]


def learned(step: int, member: int) -> Trajectory:
    """An episode that step ``step`` learned from, as the trainer keeps it."""
    one = episode(100 + step, member, ["guess", "guess again"], solved=bool(member))
    noted = tuple(msgspec.structs.replace(turn, info={**turn.info, "advantage": member - 0.5}) for turn in one.turns)
    return msgspec.structs.replace(one, turns=noted, info={"step": step})


@pytest.fixture(scope="module")
def training_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    kept = [learned(step, member) for step in (0, 4, 7) for member in (0, 1)]
    (folder / "trajectories.jsonl").write_bytes(b"".join(encode_json(found) + b"\n" for found in kept))
    (folder / "metrics.jsonl").write_bytes(b"".join(encode_json(line) + b"\n" for line in TRAINED) + b'{"step": 8, "rew')
    (folder / "vocabulary.json").write_text('["zero", "one", "two"]')
    return folder


@pytest.fixture(scope="module")
def training_url(training_folder: Path) -> Iterator[str]:
    yield from serving(training_folder)


class Watched:
    """A page, and everything on it that should not happen."""

    def __init__(self, page: Page, allowed: str) -> None:
        self.page = page
        self.trouble: list[str] = []
        page.on("dialog", lambda dialog: self.trouble.append(f"dialog {dialog.message}"))
        page.on("pageerror", lambda error: self.trouble.append(f"error {error}"))
        page.on("console", lambda message: self.trouble.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self._check(request.url, allowed))

    def _check(self, url: str, allowed: str) -> None:
        if not url.startswith((allowed, "data:image/png")):
            self.trouble.append(f"request {url[:200]}")

    def open(self, url: str) -> None:
        self.page.goto(url)
        self.page.wait_for_selector("body[data-ready=yes]")

    def assert_clean(self) -> None:
        assert self.trouble == []
        assert self.page.evaluate("window.hacked") is None


@pytest.fixture
def watched(browser: Browser, url: str) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    watched = Watched(context.new_page(), url)
    yield watched
    context.close()
    assert watched.trouble == []


# ----------------------------------------------------------------------------------------------------------------- views


def test_the_list_of_episodes(watched: Watched, url: str) -> None:
    watched.open(url)
    rows = watched.page.locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(3)).to_contain_text("no score")
    rows.nth(1).click()
    expect(watched.page).to_have_url(re.compile("#/r/0/e/1$"))


def test_filters_search_and_sorting_are_in_the_address(watched: Watched, url: str) -> None:
    watched.open(url)
    page = watched.page
    page.get_by_label("outcome").select_option("not solved")
    expect(page.locator("tbody tr")).to_have_count(1)
    watched.open(f"{url}#/r/0?sort=reward:down")
    expect(page.locator("tbody tr").first).to_contain_text("1.00")
    page.keyboard.press("/")
    page.keyboard.type("in a haystack")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"text=in\+a\+haystack"))


def test_tasks_and_environments(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0?list=tasks")
    expect(watched.page.locator("tbody tr")).to_have_count(3)
    expect(watched.page.locator("tbody tr").first).to_contain_text("1/2")
    watched.page.get_by_role("tab", name="Environments").click()
    expect(watched.page.locator("tbody tr")).to_have_count(2)


def test_the_chat(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/0?turn=2")
    expect(watched.page.locator("section.turn")).to_have_count(4)
    expect(watched.page.locator("section.turn.here")).to_contain_text("go left")
    expect(watched.page.locator("table.board").first.locator("td")).to_have_count(9)


class Lamp(palestra.Env):
    """Draws itself, and tries to do more than that."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "dark", {}

    def step(self, action: str) -> palestra.Step:
        return palestra.Step("bright", 1.0, True, False, {})

    def render(self) -> str:
        return f'<div style="background:#00f;color:#fff"><span onclick="window.hacked=1">lamp</span></div>{HOSTILE}'


def test_boards_are_drawn_by_their_environment(browser: Browser, tmp_path: Path) -> None:
    palestra.register("viewer:Lamp-v0", Lamp)
    (tmp_path / "trajectories.jsonl").write_bytes(
        b"".join(encode_json(one) + b"\n" for one in palestra.collect("viewer:Lamp-v0", lambda text: "on", n=1, progress=False))
    )
    serve = serving(tmp_path)
    watched = Watched(browser.new_page(), url := next(serve))
    watched.open(f"{url}#/r/0/e/0")
    picture = watched.page.locator(".picture").first
    expect(picture.locator("div").first).to_have_css("background-color", "rgb(0, 0, 255)")
    picture.locator("span").first.click()
    assert watched.page.locator("main script, main img, main svg, [onclick], [onload]").count() == 0
    watched.assert_clean()
    watched.page.close()
    next(serve, None)
    unregister("viewer:Lamp-v0")


def test_thinking_is_folded(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/2")
    fold = watched.page.locator(".said.policy details").first
    expect(fold.locator(".folded")).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator(".folded")).to_have_text("hm")


@pytest.mark.parametrize("colour", ["mask", "logprob", "advantage", "version"])
def test_the_tokens(watched: Watched, url: str, colour: str) -> None:
    watched.open(f"{url}#/r/0/e/0/tokens?colour={colour}")
    page = watched.page
    expect(page.locator(".segment")).to_have_count(1)
    expect(page.locator(".stretch.sampled")).to_have_count(3)
    expect(page.locator(".stretch.sampled .token")).to_have_count(60)
    expect(page.locator(".token").first).to_have_text("<b>zero</b>")
    token = page.locator(".stretch.sampled .token").first
    assert token.evaluate("t => getComputedStyle(t).backgroundColor") != "rgba(0, 0, 0, 0)"
    token.hover()
    expect(page.locator(".readout")).to_contain_text("turn 1 · log-prob −3.000 (p = 0.050)")


def test_the_group_parts_where_it_parts(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/g/0")
    expect(watched.page.locator(".member")).to_have_count(2)
    expect(watched.page.locator(".parting")).to_have_text("they part here, at turn 2")


def test_the_keyboard(watched: Watched, url: str) -> None:
    watched.open(url)
    page = watched.page
    steps = "j #/r/0/e/0, j #/r/0/e/1, n turn=1, n turn=2, t /e/1/tokens, k /e/0/tokens, g /g/0, c /e/0, u #/r/0"
    for key, address in (step.split(" ") for step in steps.split(", ")):
        page.keyboard.press(key)
        expect(page).to_have_url(re.compile(re.escape(address) + "$"))
        if shown := re.search(r"/e/(\d+)", address):  # the address changes before the episode has come
            expect(page.get_by_role("link", name=f"episode {shown[1]}")).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("next episode")


def test_dark_and_light(watched: Watched, url: str) -> None:
    watched.open(url)
    before = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
    watched.page.keyboard.press("d")
    assert watched.page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("#/r/0/e/99", "has no episode 99"),
        ("#/r/7", "no run number 7"),
        ("#/r/0/e/0/constructor", "no view called constructor"),
    ],
)
def test_what_is_not_there_is_said(watched: Watched, url: str, address: str, said: str) -> None:
    watched.open(url + address)
    expect(watched.page.locator("main")).to_contain_text(said)


# -------------------------------------------------------------------------------------------------------------- training


@pytest.fixture
def training(browser: Browser, training_url: str) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    watched = Watched(context.new_page(), training_url)
    watched.open(training_url)
    yield watched
    context.close()
    assert watched.trouble == []


def test_a_training_run_opens_with_its_curves(training: Watched) -> None:
    page = training.page
    expect(page.locator(".chart")).to_have_count(4)
    expect(page.locator(".chart").first).to_contain_text("0.7 at step 7")
    expect(page.locator(".chart").first.locator(".point.kept")).to_have_count(3)
    page.get_by_label("another number").select_option("loss")
    expect(page.locator(".chart")).to_have_count(5)
    expect(page).to_have_url(re.compile("show=loss"))


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
    expect(page.get_by_text("all 6 numbers of step 4")).to_be_visible()
    page.get_by_role("link", name="step 7 →").click()
    expect(page).to_have_url(re.compile(r"step=7$"))
    page.get_by_role("link", name="curves").click()
    expect(page.locator(".marked")).to_have_count(4)


def test_a_step_without_episodes_says_so(training: Watched, training_url: str) -> None:
    training.open(f"{training_url}#/r/0?step=3")
    expect(training.page.locator("main")).to_contain_text("No episode of step 3 was kept.")
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


# ----------------------------------------------------------------------------------------------------------- hostile text


@pytest.mark.parametrize(
    "view", ["", "#/r/0?list=tasks", "#/r/0?list=envs", "#/r/0/e/3", "#/r/0/e/3/tokens", "#/r/0/e/3/raw", "#/r/0/g/3"]
)
def test_hostile_text_is_inert_in_every_view(watched: Watched, url: str, view: str) -> None:
    watched.open(url + view)
    for summary in watched.page.locator("summary").all():
        summary.click()
    watched.page.wait_for_function("document.querySelector('main').textContent.includes('window.hacked=1')")
    assert watched.page.locator("main script, main svg, [onerror], [onload], a[href^=javascript]").count() == 0
    shown = watched.page.locator("body").inner_text()
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\x1b\x00]", shown)
    watched.assert_clean()


def test_steering_characters_are_shown_by_name(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/3")
    body = watched.page.locator(".said.policy .body").first
    expect(body).to_contain_text("U+202Etxt.exeU+2066")
    expect(body).to_contain_text("\u241b[31mred")
    assert watched.page.locator("main img").count() == 1, "the PNG is drawn, the SVG is not"


def test_a_megabyte_in_one_line_comes_in_pieces(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/3")
    more = watched.page.get_by_role("button", name=re.compile("show more"))
    expect(more).to_have_text("show more (980,000 characters left)")
    more.click()
    expect(more).to_have_text("show more (780,000 characters left)")


def test_the_exported_page_needs_nobody(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(export_page(EPISODES, HOSTILE), encoding="utf-8")
    context = browser.new_context(offline=True)
    watched = Watched(context.new_page(), file.as_uri())
    watched.open(file.as_uri())
    expect(watched.page.locator("tbody tr")).to_have_count(4)
    watched.open(file.as_uri() + "#/r/0?text=haystack")
    expect(watched.page.locator("tbody tr")).to_have_count(1)
    for view in ("#/r/0/e/3", "#/r/0/e/3/tokens", "#/r/0/g/0"):
        watched.open(file.as_uri() + view)
        expect(watched.page.locator("main")).not_to_be_empty()
    watched.assert_clean()
    context.close()


@pytest.mark.alone
@pytest.mark.slow
def test_an_episode_of_100_000_tokens_opens_within_a_second(browser: Browser, tmp_path: Path) -> None:
    long = Trajectory(
        Task("x:y"), StopReason.TERMINATED, tuple(Turn("o", Completion("a" * 2000)) for _ in range(50)), (segment(50, 2000),)
    )
    (tmp_path / "trajectories.jsonl").write_bytes(encode_json(long) + b"\n")
    serve = serving(tmp_path)
    url = next(serve)
    page = browser.new_page()
    page.goto(url)
    page.wait_for_selector("body[data-ready=yes]")
    for view, shown in (("#/r/0/e/0", "section.turn"), ("#/r/0/e/0/tokens?colour=logprob", ".token")):
        start = perf_counter()
        page.evaluate(f"location.hash = '{view}'")
        page.wait_for_selector(shown)
        assert perf_counter() - start <= 1.0
    page.close()
    next(serve, None)
