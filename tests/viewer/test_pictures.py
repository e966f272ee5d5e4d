import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import palestra
from palestra import AsyncEnv, Completion, Env, Step, StopReason, Task, Trajectory, Turn
from palestra.foundation.encoding import encode_json
from palestra.registry import unregister
from palestra.viewer.pictures import pictures_of, safe_nodes

ENV = "viewer:Light-v0"


class Light(Env):
    """A lamp that can be switched."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.on = False
        return "dark", {}

    def step(self, action: str) -> Step:
        self.on = action == "switch"
        return Step("bright" if self.on else "dark", 0.0, action == "end", False, {})

    def render(self) -> str:
        return f'<div style="background:{"#fff" if self.on else "#000"}"><span onclick="x()">{self.on}</span></div>'


@pytest.fixture(autouse=True)
def light() -> Iterator[None]:
    palestra.register(ENV, Light)
    yield
    unregister(ENV)


def line(*seen: tuple[str, str], env: str = ENV, final: str = "dark") -> bytes:
    turns = tuple(Turn(observation, Completion(action)) for observation, action in seen)
    return encode_json(Trajectory(Task(env), StopReason.TERMINATED, turns, final_observation=final))


def node(tag: str, child: Any, **style: str) -> dict[str, Any]:
    return {"tag": tag, "style": style, "children": [child]}


def lamp(on: bool) -> list[Any]:
    return [node("div", node("span", str(on)), background="#fff" if on else "#000")]


def test_no_picture_from_where_the_environment_shows_something_else() -> None:
    assert pictures_of(line(("dark", "switch"), ("dim", "end"))) == [lamp(False)]


class BlockingLight(Light):
    """The same lamp in a worker process."""

    blocking = True


class AsyncLight(AsyncEnv):
    """The same lamp for an event loop."""

    def __init__(self) -> None:
        self.lamp = Light()

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        return self.lamp.reset(seed=seed, task=task)

    async def step(self, action: str) -> Step:
        return self.lamp.step(action)

    def render(self) -> str:
        return self.lamp.render()


@pytest.mark.parametrize("kind", [Light, pytest.param(BlockingLight, marks=pytest.mark.slow), AsyncLight])
def test_one_picture_for_each_turn_and_one_for_the_end(kind: type[Env] | type[AsyncEnv]) -> None:
    palestra.register("viewer:OtherLight-v0", kind)
    try:
        pictures = pictures_of(line(("dark", "switch"), ("bright", "end"), env="viewer:OtherLight-v0"))
    finally:
        unregister("viewer:OtherLight-v0")
    assert pictures == [lamp(False), lamp(True), lamp(False)]


def test_a_replay_that_takes_too_long_ends_with_the_pictures_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forever(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("palestra.viewer.pictures.LONGEST", 0.01)
    monkeypatch.setattr("palestra.viewer.pictures._replay", forever)
    assert pictures_of(line(("dark", "switch"))) == []


@pytest.mark.parametrize(
    "env", ["tests.viewer.test_pictures:Light", "os:system", "viewer:*", "viewer:Other-v0", "remote:x#y", ""]
)
def test_a_name_in_a_file_makes_nothing_be_imported(env: str) -> None:
    assert pictures_of(line(("dark", "switch"), env=env)) is None


@pytest.mark.parametrize(
    ("html", "left"),
    [
        ("<script>alert(1)</script>a", ["a"]),
        ("<img src=x onerror=alert(1)><a href='javascript:x'>b</a>", ["b"]),
        ("<svg onload=x><b>no</b></svg>yes", ["yes"]),
        ("&lt;b&gt;", ["<b>"]),
        ('<b style="background:url(//x);color:red;position:fixed">c</b>', [node("b", "c", color="red")]),
        ('<b style="color:expression(1);width:calc(var(--x))">d</b>', [node("b", "d", color="expression(1)")]),
        ("</div></div>e<span>f", ["e", node("span", "f")]),
    ],
)
def test_only_what_is_harmless_is_left(html: str, left: list[Any]) -> None:
    assert safe_nodes(html) == left


def test_a_picture_without_end_is_cut() -> None:
    nodes = safe_nodes("<b>" * 20_000)
    depth = 0
    while nodes and isinstance(nodes[0], dict):
        depth, nodes = depth + 1, nodes[0]["children"]
    assert depth == 30


def test_an_environment_that_cannot_draw_costs_nothing_but_its_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Light, "render", lambda self: 1 / 0)
    assert pictures_of(line(("dark", "switch"))) is None
