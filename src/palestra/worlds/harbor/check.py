"""Check Harbor tasks before a model plays them: does the folder read, build and grade, and can it be cheated?

Each task is played by its own solution (twice), by an agent that does nothing (twice), and by an agent that writes rewards
itself. With ``hacks``, agents that know nothing about the task attack the verifier, each in its own box. In shared mode a hole
is reported and does not fail the task, because every shared verifier has some; with a separate or clean verifier it does.
"""

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from palestra.errors import EnvError, EpisodeError, PalestraError, SchemaError, Unsupported
from palestra.worlds.harbor.classes import MOST_MEGABYTES, classify, images_of
from palestra.worlds.harbor.env import Harbor, harbor_cache
from palestra.worlds.harbor.hacks import HACKS
from palestra.worlds.harbor.players import nop
from palestra.worlds.harbor.reading import read_task
from palestra.worlds.harbor.task import HarborTask, files_below, tree_digest

__all__ = ["CheckSettings", "TaskFinding", "TaskReport", "check_tasks"]

_HACK_SECONDS = 2.0
"""Seconds that an attack takes at most before the agent submits."""
_MOST_TURNS = 100


class TaskFinding(msgspec.Struct, frozen=True):
    """One result of a check."""

    check: str
    status: Literal["ok", "fail", "hole", "not run", "note"]
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """How tasks are checked."""

    base: str = ""
    verifier: str = ""
    hacks: bool = False
    jobs: int = 8
    """Tasks at a time."""


class TaskReport(msgspec.Struct, kw_only=True):
    """Everything that is known about a task."""

    task: str
    kind: int = 0
    """The class: 1 box, 2 prepared, 3 docker; 0 if the folder cannot be read."""
    oracle: float | None = None
    nop: float | None = None
    findings: list[TaskFinding] = []
    seconds: float = 0.0
    megabytes: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(finding.status != "fail" for finding in self.findings)

    def add(self, check: str, right: bool, detail: str = "") -> None:
        """Record a check that has passed, or failed for the reason ``detail``."""
        self.findings.append(TaskFinding(check, "ok" if right else "fail", "" if right else detail))


async def check_tasks(
    folders: Sequence[Path], settings: CheckSettings, tell: Callable[[TaskReport], None] = lambda report: None
) -> list[TaskReport]:
    """Check every task, ``settings.jobs`` at a time, and return the reports in the order of ``folders``."""
    places = asyncio.Semaphore(settings.jobs)

    async def one(folder: Path) -> TaskReport:
        async with places:
            report = await _Checked(folder, settings).run()
            tell(report)
            return report

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(folder)) for folder in folders]
    reports = [task.result() for task in running]
    _find_duplicates(folders, reports)
    return reports


def _find_duplicates(folders: Sequence[Path], reports: list[TaskReport]) -> None:
    same: dict[str, list[int]] = defaultdict(list)
    for number, folder in enumerate(folders):
        if reports[number].kind and reports[number].megabytes <= MOST_MEGABYTES:
            parts = [tree_digest(folder / name) for name in ("environment", "tests", "steps") if (folder / name).is_dir()]
            text = (folder / "instruction.md").read_text() if (folder / "instruction.md").is_file() else ""
            same[hashlib.sha256("\n".join([text, *parts]).encode()).hexdigest()].append(number)
    for places in same.values():
        for number in places[1:]:
            reports[number].add("duplicate", False, f"the same task as {reports[places[0]].task}")


@dataclass
class _Checked:
    """The check of one task."""

    folder: Path
    settings: CheckSettings
    report: TaskReport = field(init=False)
    env: Harbor = field(init=False)

    async def run(self) -> TaskReport:
        """Return the report. An error that no check expects is a failed check of this task alone."""
        began = time.monotonic()
        self.report = TaskReport(task=self.folder.name, findings=[])
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - whatever fails is a finding
            self.report.add("check", False, f"{type(error).__name__}: {error}")
        self.report.seconds = time.monotonic() - began
        return self.report

    async def _run(self) -> None:
        try:
            task = read_task(self.folder)
        except SchemaError as error:
            for line in str(error).splitlines():
                self.report.add("schema", False, line.removeprefix(f"{self.folder.name}: "))
            return
        self.report.add("schema", True)
        self.report.findings += [TaskFinding("schema", "note", warning) for warning in task.warnings]
        self.report.megabytes = task.megabytes
        if self._placed(task):
            self._find_leaks(task)
            self.env = self._opened(60.0)
            try:
                await self._play(task)
            finally:
                await self.env.close()

    def _opened(self, command_seconds: float) -> Harbor:
        base, verifier = self.settings.base, self.settings.verifier
        return Harbor(str(self.folder), command_seconds=command_seconds, base=base, verifier=verifier)

    def _placed(self, task: HarborTask) -> bool:
        cache = harbor_cache()
        if self.settings.base:
            placement = classify(task, {*cache.images(), *images_of(task)})
        else:
            placement = classify(task, cache.images(), cache.find)
        self.report.kind = placement.kind
        self.report.findings += [TaskFinding("class", "note", note) for note in placement.notes]
        if placement.kind > 1:
            self.report.findings.append(TaskFinding("class", "not run", placement.because))
        return placement.kind == 1

    def _find_leaks(self, task: HarborTask) -> None:
        """Look for the tests and the solution among the files that the agent sees."""
        hidden = {}
        for path, status in files_below(task.folder):
            if {"tests", "solution"} & set(path.split("/")[:3]) and status.st_size > 20 and (task.folder / path).is_file():
                hidden[(task.folder / path).read_bytes()] = path
        seen = [path for path, _ in files_below(task.environment) if (task.environment / path).is_file()]
        leaks = [(path, copy) for path in seen if (copy := hidden.get((task.environment / path).read_bytes()))]
        detail = ", ".join(f"environment/{path} is {copy}" for path, copy in leaks)
        self.report.add("tests hidden", not leaks, detail)

    async def _play(self, task: HarborTask) -> None:
        report = self.report
        try:
            nops = [await self._score() for _ in range(2)]
            report.nop = nops[0]
            report.add("builds", True)
            report.add("nop", max(nops) <= 0, f"an agent that does nothing gets {max(nops):g}")
            await self._play_solution(task, nops)
            forged = await self._score(HACKS["reward files"])
            report.add("forged reward", forged <= report.nop, f"a reward file of the agent counts: {forged:g}")
            if self.settings.hacks:
                await self.env.close()
                self.env = self._opened(_HACK_SECONDS)
                await self._attack(task)
        except EpisodeError as error:
            names = {"grader": "verifier", "env": "builds"}
            report.add(names.get(error.boundary, "box"), False, str(error))
        except Unsupported as error:
            report.findings.append(TaskFinding("class", "not run", str(error)))
        except PalestraError as error:
            report.add("builds", False, str(error))

    async def _play_solution(self, task: HarborTask, nops: list[float]) -> None:
        report = self.report
        if not all(step.solution for step in task.steps):
            report.findings.append(TaskFinding("oracle", "not run", "there is no solution/solve.sh"))
            return
        scores = [await self._score(solve=True) for _ in range(2)]
        report.oracle = scores[0]
        report.add("oracle", min(scores) >= 1, f"the solution gets {min(scores):g}")
        same = scores[0] == scores[1] and nops[0] == nops[1]
        report.add("determinism", same, f"two runs differ: solution {scores}, nothing {nops}")

    async def _attack(self, task: HarborTask) -> None:
        own_box = bool(self.settings.verifier) or all(step.separate for step in task.steps)
        for name, command in HACKS.items():
            try:
                score = await self._score(command)
            except EpisodeError as error:
                self.report.findings.append(TaskFinding(f"hack: {name}", "note", f"the verifier fails: {error}"))
                continue
            if score > (self.report.nop or 0.0):
                status: Literal["fail", "hole"] = "fail" if own_box else "hole"
                self.report.findings.append(
                    TaskFinding(f"hack: {name}", status, f"an agent that has not solved the task gets {score:g}")
                )
            else:
                self.report.add(f"hack: {name}", True)

    async def _score(self, command: str = "", solve: bool = False) -> float:
        await self.env.reset(seed=0)
        for turn in range(_MOST_TURNS):
            if solve:
                action = await self.env.oracle()
            else:
                action = f"```bash\n{command}\n```" if command and turn == 0 else nop("")
            step = await self.env.step(action)
            if step.terminated:
                return step.reward
        raise EnvError(f"the task did not end within {_MOST_TURNS} turns")
