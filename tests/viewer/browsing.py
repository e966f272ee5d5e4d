"""Episodes, servers and watched pages for the tests that run in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page

from palestra.errors import Boundary
from palestra.foundation.encoding import encode_json, floats, ints
from palestra.trajectory import Completion, Failure, Image, Phase, Segment, Span, StopReason, Task, Text, Trajectory, Turn

__all__ = ["EPISODES", "HOSTILE", "Watched", "episode", "segment", "serving", "watching", "write_run"]
from tests.viewer.serving import serving

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><svg onload=window.hacked=1>"
    "javascript:window.hacked=1 \u202etxt.exe\u2066 \x1b[31mred\x1b[0m \x00\u200b end"
)
PATIENCE = 300_000
"""Milliseconds: a limit that only a hang can miss, on any machine."""
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
    task, segments = Task("game:Demo-v0", seed), (segment(len(actions)),)
    return Trajectory(task, StopReason.TERMINATED, tuple(turns), segments, "over", group=seed, member=member)


def hostile_episode() -> Trajectory:
    parts = (Text(HOSTILE), Image(PIXEL), Image(b"<svg onload='window.hacked=1'>", "image/svg+xml"))
    turns = (
        Turn(parts, Completion(HOSTILE, reasoning=HOSTILE), 1.0, {HOSTILE: HOSTILE}),
        Turn("x" * 1_000_000, Completion(f"<think>{HOSTILE}</think><tool_call>{HOSTILE}</tool_call>{HOSTILE}")),
    )
    task, info = Task(HOSTILE, 9, params={HOSTILE: HOSTILE}), {HOSTILE: HOSTILE}
    failures = (Failure(Boundary.ENV, Phase.STEP, HOSTILE, HOSTILE),)
    return Trajectory(task, StopReason.ERROR, turns, (segment(2),), HOSTILE, info, failures, HOSTILE, HOSTILE)


EPISODES = [
    episode(0, 0, ["look", "go left", "take"]),
    episode(0, 1, ["look", "go right"], solved=False),
    episode(1, 0, ["<think>hm</think>wait", "needle in a haystack"]),
    hostile_episode(),
]


def write_run(folder: Path, *episodes: Trajectory) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trajectories.jsonl").write_bytes(b"".join(encode_json(episode) + b"\n" for episode in episodes))
    return folder


class Watched:
    """A page, and everything on it that should not happen."""

    def __init__(self, page: Page, allowed: str) -> None:
        self.page = page
        page.set_default_timeout(PATIENCE)
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


def watching(browser: Browser, allowed: str, width: int = 1400) -> Iterator[Watched]:
    """A page of its own, on which nothing may happen that should not."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    watched = Watched(context.new_page(), allowed)
    yield watched
    context.close()
    assert watched.trouble == []
