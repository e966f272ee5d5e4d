"""Memory of every kind is bounded: to the limit by a control group, to 1.5 times the limit by watching."""

import json
import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sandbox.memory_kinds import KINDS

from palestra.sandbox.cgroups import Groups, Hierarchy, candidates, memory_hierarchy
from palestra.sandbox.launcher import REPORT, Launcher
from palestra.sandbox.launcher import LaunchedBox as LaunchedBox
from palestra.sandbox.watch import MemoryWatch

ROOT = Path(__file__).parents[2]


def measured(*arguments: str) -> dict[str, Any]:
    pytest.importorskip("pyseccomp")
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "tests.sandbox.memory_run", *arguments]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout
    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "uid", "bound"), [("group", None, 1.1), ("watch", None, 1.5), ("watch", "12345", 1.5)], ids=str
)
def test_no_kind_of_memory_exceeds_its_bound(how: str, uid: str | None, bound: float) -> None:
    place = memory_hierarchy()
    if place is None or place.version != 1:
        pytest.skip("measuring needs root and version 1 of the memory controller")
    found = measured(how, *([uid] if uid else []))
    assert set(found) == set(KINDS)
    assert {kind: row for kind, row in found.items() if row["ratio"] > bound} == {}
    assert found["anonymous, many processes"]["killed_by"] == "memory"


V1_MOUNTS = """\
24 30 0:22 / /sys rw - sysfs sysfs rw
32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 24 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
36 24 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
"""
V2_MOUNTS = "24 30 0:22 / /sys rw - sysfs sysfs rw\n32 24 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
BOUND_MOUNTS = "32 24 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        ("4:memory:/a/b\n0::/\n", V1_MOUNTS, [(2, "/sys/fs/cgroup/unified"), (1, "/sys/fs/cgroup/memory/a/b")]),
        ("0::/user.slice/s\n", V2_MOUNTS, [(2, "/sys/fs/cgroup/user.slice/s"), (2, "/sys/fs/cgroup/user.slice")]),
        ("0::/\n", V2_MOUNTS, [(2, "/sys/fs/cgroup")]),
        ("4:memory:/docker/abc/x\n", BOUND_MOUNTS, [(1, "/sys/fs/cgroup/memory/x")]),
        ("4:memory:/elsewhere\n", BOUND_MOUNTS, []),
        ("", "", []),
        ("garbage\n::\n", "garbage - \n - - -\n", []),
    ],
)
def test_places_to_limit_memory_are_found(groups: str, mounts: str, expected: list[tuple[int, str]]) -> None:
    assert candidates(groups, mounts) == [Hierarchy(*place) for place in expected]


def fake_kernel(folder: Path, version: int, usage: int = 0, kills: int = 0) -> None:
    """The files that the kernel would make in a group."""
    events = {1: "memory.oom_control", 2: "memory.events"}[version]
    (folder / events).write_text(f"low 0\noom 1\noom_kill {kills}\n" if version == 2 else f"under_oom 0\noom_kill {kills}\n")
    (folder / {1: "memory.usage_in_bytes", 2: "memory.current"}[version]).write_text(f"{usage}\n")
    limits = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
    for name in {1: limits, 2: ["memory.max", "memory.oom.group", "memory.swap.max"]}[version]:
        (folder / name).write_text("max\n")


@pytest.mark.parametrize(
    ("version", "limits"),
    [
        (1, {"memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "1000"}),
        (2, {"memory.max": "1000", "memory.oom.group": "1", "memory.swap.max": "0"}),
    ],
)
def test_a_group_is_limited_counted_and_used_again(
    version: int, limits: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        real(path, mode)
        if Path(path).parent.parent == tmp_path:
            fake_kernel(Path(path), version)
        elif version == 2:
            (Path(path) / "cgroup.subtree_control").write_text("")

    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    monkeypatch.setattr(os, "mkdir", mkdir)
    groups = Groups(Hierarchy(version, str(tmp_path)), 1000)
    if version == 2:
        assert (Path(groups.folder) / "cgroup.subtree_control").read_text() == "+memory"
        assert (tmp_path / "cgroup.subtree_control").read_text() == "cpu memory pids\n"  # it was on already
    first = Path(groups.take())
    assert {name: (first / name).read_text().strip()[: len(value)] for name, value in limits.items()} == limits
    assert groups.kills(str(first)) == 0
    fake_kernel(first, version, usage=500, kills=2)
    assert groups.kills(str(first)) == 2
    groups.give_back(str(first))
    second = groups.take()
    assert second != str(first)  # the first is still half full
    fake_kernel(first, version, usage=10)
    assert groups.take() == str(first)
    for file in first.iterdir():
        file.unlink()
    first.rmdir()
    assert groups.kills(str(first)) is None  # another program removed the group
    groups.give_back(str(first))
    assert groups.take() != str(first)


def test_groups_of_launchers_that_were_killed_are_removed() -> None:
    place = memory_hierarchy()
    if place is None:
        pytest.skip("this process may not make control groups")
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = Path(place.folder, f"palestra-{gone.pid}", "1")
    left.mkdir(parents=True)
    groups = Groups(place, 2**30)
    assert not left.parent.exists()
    groups.take()
    groups.close()
    assert not Path(groups.folder).exists()


def test_the_launcher_survives_a_group_that_another_program_removes() -> None:
    """While a box runs, and when it has ended."""
    launcher, told = Launcher.__new__(Launcher), list[bytes]()
    launcher.groups = Groups.__new__(Groups)
    launcher.groups.version = 2
    launcher.groups._free = deque()
    launcher.watch = MemoryWatch(2**30)
    launcher.control = SimpleNamespace(send=told.append)  # type: ignore[assignment]
    box = LaunchedBox(1, 0, "/nowhere/palestra-0/1", launcher.groups.kills("/nowhere/palestra-0/1") or 0)
    box.status = 0
    launcher.boxes = {1: box}
    assert not launcher._is_full(box)
    launcher._report(box)
    assert REPORT.unpack(told[0])[:4] == (b"E", 1, 0, bytes(10))
