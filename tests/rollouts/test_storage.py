from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palestra import Completion, StopReason, Task, Trajectory, Turn
from palestra.errors import Boundary, SchemaError
from palestra.foundation.encoding import encode_json
from palestra.rollouts import TrajectoryWriter, grouped, read_trajectories
from palestra.trajectory import Usage
from tests.rollouts.hostile import endless, nested


def some(n: int) -> list[Trajectory]:
    return [Trajectory(Task("t", i), StopReason.TERMINATED, (Turn("é" * i, Completion("a"), 1.0),)) for i in range(n)]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.jsonl"
    with TrajectoryWriter(path) as writer:
        for trajectory in some(3):
            writer.write(trajectory)
            assert list(read_trajectories(path))[-1] == trajectory, "it is on its way to the disk at once"
        writer.close()
    with TrajectoryWriter(path) as writer:
        writer.write(some(4)[3])
    assert list(read_trajectories(path)) == some(4)
    assert all(b'"schema":1' in line for line in path.read_bytes().splitlines())


class Sulking:
    def __str__(self) -> str:
        raise ZeroDivisionError("no")


ENDLESS: tuple[Any, ...] = (endless(), nested(5000), {"list": [endless()]}, {Sulking(): object()})


def bad_turn(**fields: Any) -> Trajectory:
    return Trajectory(Task("t", 1), StopReason.TERMINATED, (Turn("seen", Completion("done"), **fields),))


UNREADABLE = [
    *(bad_turn(info=info) for info in ENDLESS),
    *(Trajectory(Task("t", 1), StopReason.TERMINATED, info=info) for info in ENDLESS),
    bad_turn(reward=1e10),
    bad_turn(reward="1"),
    bad_turn(info=[1]),
    Trajectory(Task("t", 1), StopReason.TERMINATED, (Turn("seen", Completion("done", usage=Usage(dollars=float("nan")))),)),
    Trajectory(Task("t", 1), StopReason.TERMINATED, (Turn("seen", Completion("done", finish="boredom")),)),  # type: ignore[arg-type]
    Trajectory(Task("t", 1), StopReason.TERMINATED, some(1)[0].turns, player=5),  # type: ignore[arg-type]
    Trajectory(Task("t", 1), StopReason.TERMINATED, some(1)[0].turns, policy=7),  # type: ignore[arg-type]
    Trajectory(Task("t", 1), StopReason.TERMINATED, (Turn(7, Completion("done")),)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("trajectory", UNREADABLE, ids=range(len(UNREADABLE)))
def test_the_writer_writes_nothing_that_the_reader_refuses(tmp_path: Path, trajectory: Trajectory) -> None:
    path = tmp_path / "run.jsonl"
    with TrajectoryWriter(path) as writer:
        writer.write(some(1)[0])
        written = writer.write(trajectory)
        writer.write(some(3)[2])
    assert list(read_trajectories(path)) == [some(1)[0], written, some(3)[2]]
    assert (written.stop, written.task) == (StopReason.ERROR, trajectory.task)
    assert written.reward is None, "a failure is not a zero"
    assert written.failures[-1].boundary is Boundary.ENV
    assert "written" in written.failures[-1].message


def test_live_objects_and_odd_names_do_not_cost_the_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with TrajectoryWriter(path) as writer:
        writer.write(Trajectory(Task("t"), StopReason.TERMINATED, info={"file": writer, "kept": 1}, player="\ud800"))
    (back,) = read_trajectories(path)
    assert (back.info["kept"], back.player) == (1, "\ufffd")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(0, 600))
def test_a_file_cut_anywhere_gives_its_whole_lines_and_can_go_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "torn.jsonl"
    lines = [encode_json(trajectory) + b"\n" for trajectory in some(3)]
    path.write_bytes(b"".join(lines)[:cut])
    whole = path.read_bytes().count(b"\n")
    assert list(read_trajectories(path)) == some(whole)
    with TrajectoryWriter(path) as writer:
        writer.write(some(9)[8])
    assert list(read_trajectories(path)) == [*some(whole), some(9)[8]]


def test_damage_anywhere_else_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    line = encode_json(some(1)[0]) + b"\n"
    path.write_bytes(line + b"{broken}\n" + line)
    with pytest.raises(SchemaError, match=r"bad\.jsonl, line 2: not a Trajectory"):
        list(read_trajectories(path))
    path.write_bytes(line + line.replace(b'"schema":1', b'"schema":99'))
    with pytest.raises(SchemaError, match=r"line 2: .*has schema 99, this version of palestra reads 1"):
        list(read_trajectories(path))
    path.write_bytes(line.replace(b'"reward":1.0', b'"reward":1e308'))
    with pytest.raises(SchemaError, match=r"line 1: .*<= 1000000000"):
        list(read_trajectories(path))


async def test_groups_come_as_soon_as_they_are_whole_and_nothing_is_lost() -> None:
    closed = []

    async def stream():  # type: ignore[no-untyped-def]
        try:
            for group, member, player in [(0, 1, ""), (1, 0, "a"), (0, 0, ""), (1, 0, "b"), (1, 1, "a")]:
                yield Trajectory(Task("t", group), StopReason.TERMINATED, group=group, member=member, player=player)
        finally:
            closed.append(True)

    groups = [group async for group in grouped(stream(), 2)]  # type: ignore[no-untyped-call]
    assert [(g.task.seed, [m.member for m in g.members], g.members[0].player) for g in groups] == [
        (0, [0, 1], ""),
        (1, [0, 1], "a"),
        (1, [0], "b"),
    ]
    early = grouped(stream(), 2)  # type: ignore[no-untyped-call]
    async for _ in early:
        break
    await early.aclose()  # type: ignore[attr-defined]
    assert closed == [True, True]
