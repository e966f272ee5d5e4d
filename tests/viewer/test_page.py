import json
from html.parser import HTMLParser

import pytest

from palestra.errors import Boundary, SchemaError
from palestra.foundation.encoding import encode_json, floats, ints
from palestra.trajectory import Completion, Failure, Phase, Segment, Span, StopReason, Task, Trajectory, Turn, Usage
from palestra.viewer import export_page
from palestra.viewer.page import page
from palestra.viewer.summary import summarise

HOSTILE = "</script><script>window.hacked=1</script><!-- <img src=x onerror=window.hacked=1> \u202egnp.exe \x1b[31m {{script}}"


class Scripts(HTMLParser):
    """Collects the scripts a browser would see, as (id, type, text)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str | None, str | None, str]] = []
        self._open: dict[str, str | None] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self._open = dict(attrs)
            self.found.append((self._open.get("id"), self._open.get("type"), ""))

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            id, kind, text = self.found[-1]
            self.found[-1] = (id, kind, text + data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._open = None


def scripts(html: str) -> list[tuple[str | None, str | None, str]]:
    parser = Scripts()
    parser.feed(html)
    return parser.found


def hostile_trajectory() -> Trajectory:
    turn = Turn(HOSTILE, Completion(HOSTILE, reasoning=HOSTILE), 1.0, {HOSTILE: HOSTILE, "success": True})
    return Trajectory(Task("game:X-v0", 3), StopReason.TERMINATED, (turn,), final_observation=HOSTILE, policy=HOSTILE)


def test_every_trajectory_is_in_the_page_to_the_letter() -> None:
    trajectory = hostile_trajectory()
    blocks = {id: text for id, kind, text in scripts(export_page([trajectory], "demo")) if kind == "application/json"}
    assert set(blocks) == {"catalog", "episode-0-0"}
    assert json.loads(blocks["episode-0-0"]) == json.loads(encode_json(trajectory))


def test_the_page_runs_its_own_script_and_no_other() -> None:
    inline = scripts(export_page([hostile_trajectory()], HOSTILE))
    assert [kind for _, kind, _ in inline] == ["application/json", "application/json", None]
    assert "hacked" not in inline[-1][2]


def test_the_policy_names_the_hash_of_the_script_and_allows_no_network() -> None:
    shown = page("t", served=False)
    assert "default-src 'none'" in shown.security_policy
    assert "connect-src 'none'" in shown.security_policy
    assert "unsafe" not in shown.security_policy
    assert "connect-src 'self'" in page("t", served=True).security_policy


def test_a_title_that_looks_like_a_mark_stays_a_title() -> None:
    assert "<title>{{style}}</title>" in export_page([], "{{style}}")


def test_summary_of_an_episode() -> None:
    segment = Segment(ints(range(10)), (Span(2, 4, 0, 5), Span(6, 9, 1, 6)), floats([-1.0] * 5))
    turns = (
        Turn("a", Completion("b", usage=Usage(5, 2, 0.25))),
        Turn("c", Completion("d", usage=Usage(9, 3, 0.5)), 0.5, {"success": 1}),
    )
    trajectory = Trajectory(
        Task("game:X-v0", 3, index=7, split="test"), StopReason.TURN_LIMIT, turns, (segment,), group=4, member=2
    )
    columns = summarise([encode_json(trajectory)])
    assert columns.env.values == ["game:X-v0"]
    assert columns.task.values == ["seed 3 · row 7 · test"]
    assert (columns.reward, columns.success, columns.turns) == ([0.5], [True], [2])
    assert (columns.sampled, columns.context, columns.version) == ([5], [10], [6])
    assert (columns.dollars, columns.group, columns.member) == ([0.75], [4], [2])


@pytest.mark.parametrize("length", range(9))
def test_the_length_of_a_segment_is_read_without_decoding_it(length: int) -> None:
    trajectory = Trajectory(Task("x:y"), StopReason.TERMINATED, segments=(Segment(ints(range(length)), (), floats([])),))
    assert summarise([encode_json(trajectory)]).context == [length]


def test_a_failed_episode_has_no_reward_and_a_fault() -> None:
    failure = Failure(Boundary.INFRASTRUCTURE, Phase.ACT, "OSError", "gone")
    turn = Turn("a", Completion("b"), 1.0, {"success": True})
    columns = summarise([encode_json(Trajectory(Task("x:y"), StopReason.ERROR, (turn,), failures=(failure,)))])
    assert (columns.reward, columns.success, columns.boundary.values) == ([None], [None], ["infrastructure"])
    assert columns.cause.values == ["OSError: gone"]


def test_a_cut_episode_is_not_solved_where_its_environment_judges() -> None:
    def one(env: str, stop: StopReason, **info: bool) -> bytes:
        return encode_json(Trajectory(Task(env), stop, (Turn("a", Completion("b"), 0.0, info),)))

    lines = [
        one("x:judging", StopReason.TERMINATED, success=True),
        one("x:judging", StopReason.TURN_LIMIT),
        one("x:judging", StopReason.TERMINATED),
        one("x:silent", StopReason.TURN_LIMIT),
        one("x:judging", StopReason.ERROR),
    ]
    assert summarise(lines).judged() == [True, False, None, None, None]


def test_what_is_no_trajectory_is_refused() -> None:
    with pytest.raises(SchemaError, match="not a Trajectory"):
        summarise([b'{"task": 3}'])
