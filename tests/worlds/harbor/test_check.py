"""The check of tasks: planted faults are found, sound tasks raise no alarm, hacks fail in a box of the verifier's own."""

from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.worlds.harbor.folders import CLASSES, SOUND, TEST, write

from palestra.errors import Unsupported
from palestra.worlds.harbor.check import CheckSettings, TaskReport, check_tasks
from palestra.worlds.harbor.env import Harbor
from palestra.worlds.harbor.hacks import HACKS
from palestra.worlds.harbor.reading import read_task
from palestra.worlds.harbor.task import HarborTask

HOST = CheckSettings(base="host")


def failed(report: TaskReport) -> list[str]:
    return [one.check for one in report.findings if one.status == "fail"]


async def one(folder: Path, settings: CheckSettings = HOST) -> TaskReport:
    (report,) = await check_tasks([folder], settings)
    return report


SOUND_WITH_FULL_REWARD = [name for name in SOUND if not name.startswith("steps-")]


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_sound_tasks_raise_no_alarm(tmp_path: Path) -> None:
    folders = []
    for number, name in enumerate(SOUND_WITH_FULL_REWARD):
        text = {
            "instruction.md": f"{SOUND[name].files.get('instruction.md') or 'Write hello to /app/answer.txt.'} ({number})\n"
        }
        folders.append(write(tmp_path / name, {**SOUND[name].files, **text}, SOUND[name].toml))
    reports = await check_tasks(folders, HOST)
    assert [(report.task, failed(report)) for report in reports if failed(report)] == []
    assert {(report.oracle, report.nop) for report in reports} == {(1.0, 0.0)}


RANDOM = "#!/bin/bash\n[ -e /app/answer.txt ] && r=$((RANDOM + 1)) || r=0\necho $r > /logs/verifier/reward.txt\n"
PLANTED: dict[str, tuple[dict[str, str | None], str]] = {
    "useless solution": ({"solution/solve.sh": "#!/bin/sh\n:\n"}, "oracle"),
    "gift": ({"tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"}, "nop"),
    "silent verifier": ({"tests/test.sh": "#!/bin/sh\n:\n"}, "verifier"),
    "random verifier": ({"tests/test.sh": RANDOM}, "determinism"),
    "leaked tests": ({"environment/copy.sh": TEST}, "tests hidden"),
    "build fails": ({"environment/Dockerfile": "FROM debian:12\nRUN false\n"}, "builds"),
    "no instruction": ({"instruction.md": None}, "schema"),
}


@pytest.mark.parametrize("name", PLANTED)
async def test_planted_faults_are_found(name: str, tmp_path: Path) -> None:
    files, check = PLANTED[name]
    report = await one(write(tmp_path / "task", files))
    assert check in failed(report)
    assert set(failed(report)) <= {check}
    assert not report.ok


@pytest.mark.parametrize("name", [name for name, case in CLASSES.items() if case.kind == 3])
async def test_a_task_that_needs_docker_is_not_run_and_the_reason_is_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palestra.worlds.harbor.classes.users_missing", lambda: "a box has one user here")
    case = CLASSES[name]
    folder = write(tmp_path / name, case.files, case.toml)
    report = await one(folder)
    (found,) = [finding for finding in report.findings if finding.status == "not run"]
    assert (report.kind, report.ok, report.oracle, report.nop) == (3, True, None, None)
    assert (found.check, case.says in found.detail) == ("class", True)
    env = Harbor(f"{folder}?base=host")
    try:
        with pytest.raises(Unsupported, match="needs docker") as caught:
            await env.reset(seed=0)
        assert case.says in str(caught.value)
    finally:
        await env.close()


async def test_duplicates_are_found(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, toml="[environment]\ngpus = 1\n") for name in ("a", "b", "c")]
    (tmp_path / "c/instruction.md").write_text("Another.\n")
    assert [failed(report) for report in await check_tasks(folders, HOST)] == [[], ["duplicate"], []]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["shared", "separate", "clean"])
async def test_hacks_fail_in_a_box_of_the_verifiers_own(kind: str, tmp_path: Path) -> None:
    toml = SOUND["separate"].toml if kind == "separate" else None
    folder = write(tmp_path / "task", toml=toml)
    report = await one(folder, CheckSettings(base="host", verifier="clean" if kind == "clean" else "", hacks=True))
    holes = [finding.check for finding in report.findings if finding.status == "hole"]
    tried = [finding.check for finding in report.findings if finding.check.startswith("hack: ")]
    assert tried == [f"hack: {name}" for name in HACKS]
    known = {"hack: aliases beside a process", "hack: a daemon"}  # others depend on which process is faster
    assert failed(report) == []
    assert set(holes) >= known if kind == "shared" else not holes


async def test_an_odd_task_does_not_end_the_check_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = {"environment/Dockerfile": f"FROM debian:12\nCOPY [1, 2]\nRUN {'[' * 100_000}\n"}
    folders = [write(tmp_path / "odd", odd), write(tmp_path / "broken"), write(tmp_path / "good")]

    def read(folder: Path) -> HarborTask:
        if folder.name == "broken":
            raise OSError("the disk is broken")
        return read_task(folder)

    monkeypatch.setattr("palestra.worlds.harbor.check.read_task", read)
    reports = await check_tasks(folders, HOST)
    assert [report.kind for report in reports] == [2, 0, 1]
    assert [(one.check, one.detail) for one in reports[1].findings] == [("check", "OSError: the disk is broken")]
    assert (failed(reports[2]), reports[2].oracle) == ([], 1.0)
