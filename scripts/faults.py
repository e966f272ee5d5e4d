#!/usr/bin/env python
"""Plant faults in the source, one at a time, and record which of them the tests notice.

    python scripts/faults.py plant --out faults.json                          60 faults over all areas, drawn with seed 0
    python scripts/faults.py plant --areas durable --per-area 40 --seed 3 --out durable.json
    python scripts/faults.py plant --again --seed 3 --out durable.json        the unnoticed ones once more
    python scripts/faults.py show faults.json                                 a table, and what was not noticed
    python scripts/faults.py show faults.json --require 90 80                fail below these percentages: all tests, fast tests
    python scripts/faults.py gate --folder gate                               40 faults: what does only `.ci/run --all` notice?

A fault changes a single statement: a comparison, an operator, a constant or a condition; or it drops a return value, swaps two
arguments, or removes the statement. A statement is drawn from all statements of an area by the seed, and then one of its
faults. The tests of the area run once, and coverage records which test reaches which line. Each fault is planted in a copy of
the tree, never in the tree itself, and only the tests that reach its line run: the fast ones, then the slow ones if no fast one
noticed. A test that fails, hangs or crashes has noticed the fault.

``scripts/faults_equivalent.toml`` lists the faults that change no behavior, each with its reason. They count in no share. A
fault is known by its file, its statement and its change, not by its line, so the list survives other edits.

The process that plants imports the large packages once, and forks for every fault. The file of results is written after each
fault; the same command continues it.

``gate`` asks what the gate loses against ``.ci/run --all``. It plants one fault in each of 40 rooms: folders of
``src/palestra`` with Python files of their own, the core's first. The seed is 4242. It was fixed before the tests were looked
at, so nobody has chosen faults that the gate happens to notice. All tests of ``--all`` run once, in two workers, and coverage
records which of them reach the files with a fault, also in the processes that a test starts. For each fault, the gate's tests
that reach the line run, and if none of them fails, those that only ``--all`` runs. A test that failed has to pass without the
fault, or it does not count. More than one of 40 that is noticed by ``--all`` alone, and any fault of the core that nothing
notices, is a failure.
"""

import argparse
import ast
import compileall
import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import py_compile
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("faults_equivalent.toml")

TRAINING = "src/palestra/training"
AREAS: dict[str, tuple[list[str], list[str]]] = {
    "rollout": (["src/palestra/rollouts"], ["tests/rollouts"]),
    "grading": (["src/palestra/grading"], ["tests/grading"]),
    "durable": (["src/palestra/durable"], ["tests/durable"]),
    "statistics": (
        ["src/palestra/foundation/statistics.py"],
        ["tests/foundation/test_statistics.py", "tests/evaluation/test_stopped.py"],
    ),
    "wrappers": (["src/palestra/wrappers"], ["tests/wrappers"]),
    "adapters": (["src/palestra/adapters"], ["tests/adapters"]),
    "trajectory": (
        ["src/palestra/trajectory", "src/palestra/trajectory/segments.py"],
        ["tests/trajectory", "tests/trajectory/test_trajectory.py", "tests/trajectory/test_segments.py"],
    ),
    "agents": (["src/palestra/agents"], ["tests/agents"]),
    "algorithms": (
        [f"{TRAINING}/algorithms"],
        ["tests/training/algorithms", "tests/training/test_experience.py", "tests/training/test_pitfalls.py"],
    ),
    "learner": ([f"{TRAINING}/learner"], ["tests/training/learner"]),
}
"""Area → its source, and its tests."""

IMPORTED_ONCE = ("numpy", "msgspec", "torch", "transformers", "pytest", "hypothesis", "pytest_asyncio", "typer", "rich.console")
"""Packages that the tests of several areas import. None of them imports Palestra."""
FAST, SLOW = "not slow and not full and not alone", "slow and not full and not alone"
LEAST_SECONDS = 20.0
"""A run of tests may take twice as long as recorded, and this many seconds more."""
MOST_SECONDS = {FAST: 60.0, SLOW: 90.0}
"""How many recorded seconds of tests run for one fault. The tests of the source's own test module come first."""
STAGES = {"fast": MOST_SECONDS[FAST], "gate": MOST_SECONDS[SLOW], "all": MOST_SECONDS[SLOW]}
"""The stages of the command ``gate``, with their seconds: fast tests, slow ones of the gate, those of ``--all`` alone."""
ROOMS, ROOM_SEED = 40, 4242
ALONE = 1
"""How many faults ``--all`` alone may notice."""
MOST_MEMORY = 8 << 30


# ------------------------------------------------------------------------------------------------------------------- faults


class Fault(NamedTuple):
    """One change of one statement."""

    path: str
    line: int
    change: str
    """What is changed, such as ``< becomes <=``."""
    statement: str
    """The first line of the statement, as it stands in the source."""
    column: int
    start: int
    stop: int
    """The bytes of the file that are replaced."""
    replacement: str

    @property
    def key(self) -> str:
        """The same fault has the same key, wherever its line has moved to."""
        return hashlib.sha256("\0".join((self.path, self.statement, self.change)).encode()).hexdigest()[:16]


COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
SYMMETRIC = ("min", "max", "np.minimum", "np.maximum", "torch.minimum", "torch.maximum", "np.array_equal", "math.hypot")
REMOVABLE = (ast.Expr, ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break)
IGNORED_CALLS = ("TypeVar", "ParamSpec", "cast")


def faults_of(path: Path) -> list[list[Fault]]:
    """Return the faults of every statement of the file that has any."""
    source = path.read_bytes()
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    name = str(path.relative_to(ROOT))

    def fault(statement: ast.stmt, node: ast.AST, change: str, replacement: str) -> Fault:
        start = offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        stop = offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        text = lines[statement.lineno - 1].decode().strip()
        return Fault(name, statement.lineno, change, text, node.col_offset, start, stop, replacement)  # type: ignore[attr-defined]

    found: list[list[Fault]] = []
    for statement in _statements(ast.parse(source)):
        own: list[Fault] = []
        for node in _expressions(statement):
            own += [fault(statement, node, change, f"({ast.unparse(new)})") for change, new in _changes(node)]
        if isinstance(statement, ast.If | ast.While):
            negated = ast.unparse(ast.UnaryOp(ast.Not(), statement.test))
            own.append(fault(statement, statement.test, f"if {ast.unparse(statement.test)} is negated", f"({negated})"))
        if isinstance(statement, REMOVABLE) and not _is_documentation(statement):
            own.append(fault(statement, statement, f"removed: {ast.unparse(statement)}", "pass"))
        if isinstance(statement, ast.Return) and not (statement.value is None or _is_none(statement.value)):
            own.append(fault(statement, statement, f"returns None, not {ast.unparse(statement.value)}", "return None"))
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(_target(statement), ast.Attribute):
            value = statement.value
            if value is not None and not _is_none(value):
                own.append(fault(statement, value, f"sets None, not {ast.unparse(value)}", "None"))
        if own:
            found.append(own)
    return found


def _target(statement: ast.Assign | ast.AnnAssign) -> ast.expr:
    return statement.targets[0] if isinstance(statement, ast.Assign) else statement.target


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_documentation(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield every statement that does something when it runs."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
            continue  # asserts state what the rest of the code ensures
        names = [ast.unparse(target) for target in getattr(node, "targets", [])]
        if isinstance(node, ast.stmt) and "__all__" not in names and not _is_documentation(node):
            yield node
        pending = [
            child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case)
        ] + pending


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions that belong to this statement itself, without annotations and statements inside it."""
    fields = {
        ast.FunctionDef: ("args",),
        ast.AsyncFunctionDef: ("args",),
        ast.ClassDef: (),
        ast.AnnAssign: ("value",),
    }.get(type(statement))
    pending: list[Any] = (
        [statement] if fields is None else [part for name in fields if (part := getattr(statement, name)) is not None]
    )
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.JoinedStr):
            continue  # the wording of a text
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue  # it states an invariant, like an assert
        if isinstance(node, ast.arg) or (isinstance(node, ast.Call) and ast.unparse(node.func) in IGNORED_CALLS):
            continue
        if isinstance(node, ast.expr):
            yield node
        if isinstance(node, ast.stmt) and node is not statement:
            continue
        pending += [
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case | ast.pattern)
        ]


def _changes(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield what ``node`` may become, and how that is called."""
    text = ast.unparse(node)
    made: list[ast.expr] = []
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    made.append(ast.Compare(node.left, [*node.ops[:place], other(), *node.ops[place + 1 :]], node.comparators))
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS and not isinstance(
            left, ast.Constant | ast.JoinedStr
        ):
            made.append(ast.BinOp(left, OPERATORS[type(operator)](), right))
        case ast.BoolOp(operator, values):
            made.append(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
            for place in range(len(values)):
                rest = values[:place] + values[place + 1 :]
                made.append(rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest))
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            made.append(operand)
        case ast.IfExp(test, body, other):
            made.append(ast.IfExp(test, other, body))
        case ast.Constant(bool(value)):
            made.append(ast.Constant(not value))
        case ast.Constant(int(value) | float(value)):
            made += [ast.parse(f"({value + delta})", mode="eval").body for delta in (1, -1)]
        case ast.Call(function, arguments, keywords):
            name = ast.unparse(function)
            if len(arguments) >= 2 and name not in SYMMETRIC and not any(isinstance(one, ast.Starred) for one in arguments[:2]):
                made.append(ast.Call(function, [arguments[1], arguments[0], *arguments[2:]], keywords))
            if name in OPPOSITE:
                made.append(ast.Call(ast.Name(OPPOSITE[name]), arguments, keywords))
    for new in made:
        yield f"{text} becomes {ast.unparse(new)}", new


def draw(area: str, seed: int, count: int, skipped: Container[str]) -> list[Fault]:
    """Return ``count`` faults of ``area``: statements drawn by the seed, and of each one fault."""
    return _drawn(area, _statements_of(area), seed, skipped)[:count]


def _drawn(name: str, statements: list[list[Fault]], seed: int, skipped: Container[str]) -> list[Fault]:
    rng = random.Random(f"{name} {seed}")
    rng.shuffle(statements)
    chosen = [rng.choice(faults) for faults in statements]
    return [fault for fault in chosen if fault.key not in skipped]


def draw_rooms(count: int, core: Sequence[str], skipped: Container[str]) -> dict[str, Fault]:
    """Return room → fault for ``count`` rooms: those of the core, and others drawn by the seed."""
    package = ROOT / "src" / "palestra"
    files: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*.py")):
        files.setdefault(path.parent.relative_to(package).as_posix(), []).append(path)
    rooms = [room for room in files if not is_core(room, core)]
    random.Random(f"rooms {ROOM_SEED}").shuffle(rooms)
    drawn: dict[str, Fault] = {}
    for room in [*(room for room in files if is_core(room, core)), *rooms]:
        statements = [faults for path in files[room] for faults in faults_of(path)]
        if len(drawn) < count and (faults := _drawn(room, statements, ROOM_SEED, skipped)):
            drawn[room] = faults[0]
    return drawn


def is_core(room: str, core: Sequence[str]) -> bool:
    """Return whether the room is in one of the folders of the core, or is the package's own folder."""
    return room == "." or any(Path(room).is_relative_to(folder) for folder in core)


def _statements_of(area: str) -> list[list[Fault]]:
    return [faults for place in AREAS[area][0] for path in _files(place) for faults in faults_of(path)]


def _planted_before(area: str, results: dict[str, Any]) -> list[Fault]:
    """Return the faults of ``results``. Of equal statements, the one at the line of the result is meant."""
    found: dict[str, Fault] = {}
    lines = {_key(entry): entry["line"] for entry in results.values()}
    for fault in (fault for faults in _statements_of(area) for fault in faults if fault.key in lines):
        if fault.key not in found or fault.line == lines[fault.key]:
            found[fault.key] = fault
    return list(found.values())


def _files(place: str) -> list[Path]:
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def equivalents() -> dict[str, str]:
    """Return the faults that change no behavior: key → reason."""
    if not EQUIVALENT.exists():
        return {}
    entries = tomllib.loads(EQUIVALENT.read_text())["fault"]
    return {Fault(e["path"], 0, e["change"], e["statement"], 0, 0, 0, "").key: e["reason"] for e in entries}


# ------------------------------------------------------------------------------------------------------- a copy of the tree


class Tree:
    """A copy of the repository in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        for name in filter(None, names.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name, follow_symlinks=False)
        # Bytecode that is checked by the content of its source, so a planted fault is never missed.
        checked = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder / "src", quiet=2, invalidation_mode=checked)

    def warm(self, tests: Sequence[str], log: Path) -> None:
        """Compile the tests as pytest does, once for all faults."""
        forked(lambda: run_pytest(self, ["--collect-only", *tests], compiling=True), 600, log)

    @contextlib.contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """Hold ``fault`` in the copy for the length of a ``with`` block."""
        path = self.folder / fault.path
        source = path.read_bytes()
        path.write_bytes(source[: fault.start] + fault.replacement.encode() + source[fault.stop :])
        try:
            yield
        finally:
            path.write_bytes(source)


def forked(work: Callable[[], int], seconds: float, log: Path) -> int | None:
    """Run ``work`` in a process group of its own. Return its exit code, or ``None`` if it had to be killed."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)  # not a session: Linux would weigh each session's share of the processor anew, whatever ``nice`` says
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = 70
        try:
            code = int(work())
        except BaseException as error:  # noqa: BLE001 - the fork ends here, with the reason
            os.write(2, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    status: int | None = None
    while status is None and time.monotonic() < end:
        done, raw = os.waitpid(pid, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(raw)
        else:
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # also what the tests have left behind
    if status is None:
        os.waitpid(pid, 0)
    return status


def run_pytest(tree: Tree, arguments: Sequence[str], plugins: Sequence[object] = (), *, compiling: bool = False) -> int:
    """Run pytest in this process, which is a fork and ends with it, on the copy of the tree."""
    os.chdir(tree.folder)
    os.environ["PYTHONPATH"] = f"{tree.folder / 'src'}{os.pathsep}{tree.folder}"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = not compiling
    sys.path[:0] = [str(tree.folder / "src"), str(tree.folder)]
    base = tempfile.mkdtemp(dir=tree.folder.parent)
    options = [
        "-q",
        "-x",
        "-p",
        "no:xdist",
        "-p",
        "no:faker",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        f"--basetemp={base}/t",
        "--tb=line",
        "--no-header",
    ]
    return int(pytest.main([*options, *arguments], plugins=list(plugins)))


# ------------------------------------------------------------------------------------------------------------- the recording


@dataclasses.dataclass
class Recording:
    """Which tests of an area reach which lines, and how long they take."""

    seconds: dict[str, float]
    """Tests that pass, with their duration."""
    lines: dict[str, dict[int, list[str]]]
    """File → line → tests. Lines that run when a module is imported belong to all tests that reach the file."""

    def tests_of(self, fault: Fault, most: float) -> list[str]:
        """The tests that reach the fault, those of its own module first, then the quickest, as far as ``most`` seconds go."""
        own = self.lines.get(fault.path, {})
        tests = own.get(fault.line) or []
        if not tests or "" in tests:  # run at import, or in a process of which nothing is recorded
            tests = list(self.seconds)
        stem = Path(fault.path).stem
        return self.within(
            most, sorted(set(tests) & self.seconds.keys(), key=lambda name: (f"test_{stem}." not in name, self.seconds[name]))
        )

    def within(self, most: float, tests: Sequence[str]) -> list[str]:
        """Leave out each test that does not fit into what the ones before it leave of ``most`` seconds."""
        chosen: list[str] = []
        for test in tests:
            if self.seconds[test] <= most:
                chosen.append(test)
                most -= self.seconds[test]
        return chosen


class _Watch:
    """A plugin: coverage by test, and the tests that pass."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.skipped: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.outcome == "failed":
            self.failed.add(report.nodeid)
        elif report.outcome == "skipped":
            self.skipped.add(report.nodeid)


def record(area: str, marks: str, tree: Tree, folder: Path) -> Recording:
    """Run the tests of ``area`` that have these ``marks``. Of tests recorded in ``folder``, only changed files run again."""
    kept = folder / f"{area}-{'fast' if marks is FAST else 'slow'}.json"
    sources, tests = ([str(path.relative_to(ROOT)) for place in places for path in _files(place)] for places in AREAS[area])
    source = _digest([tree.folder / name for name in sources])
    digests = {name: _digest([tree.folder / name]) for name in tests if Path(name).name.startswith("test_")}
    old = json.loads(kept.read_text()) if kept.exists() else {}
    if old.get("source") != source:
        old = {"seconds": {}, "lines": {}, "failed": [], "digests": {}}
    changed = [name for name, digest in digests.items() if old["digests"].get(name) != digest]
    if changed:
        began = time.monotonic()

        def stays(test: str) -> bool:
            return (name := test.partition("::")[0]) in digests and name not in changed

        def work() -> int:
            os.chdir(tree.folder)
            import coverage

            watched = coverage.Coverage(data_file=None, config_file=False, include=[f"{tree.folder}/src/palestra/*"])
            watched.start()
            watch = _Watch(watched)
            code = run_pytest(tree, [*changed, "-m", marks, "--maxfail=1000"], [watch])
            watched.stop()
            data = watched.get_data()
            lines: dict[str, dict[int, list[str]]] = {
                name: data.contexts_by_lineno(str(tree.folder / name)) for name in sources
            }
            for name, before in old["lines"].items():
                for line, reached in before.items():
                    lines[name].setdefault(int(line), []).extend(filter(stays, reached))
            seconds = {test: took for test, took in watch.seconds.items() if test not in watch.failed | watch.skipped}
            seconds |= {test: took for test, took in old["seconds"].items() if stays(test)}
            failed = [*watch.failed, *filter(stays, old["failed"])]
            text = json.dumps({"source": source, "digests": digests, "seconds": seconds, "lines": lines, "failed": failed})
            kept.write_text(text)
            return 0 if code in (0, 1, 5) else code

        code = forked(work, 3600, folder / f"{kept.stem}.log")
        if code is None or code:
            raise SystemExit(f"the tests of {area} could not be recorded (exit code {code}): see {folder / kept.stem}.log")
        print(f"{area}: {len(changed)} files of tests recorded in {time.monotonic() - began:.0f} s", flush=True)
    data = json.loads(kept.read_text())
    for test in data["failed"]:
        print(f"{area}: {test} does not pass without a fault, and is left out", flush=True)
    return Recording(data["seconds"], {name: {int(n): t for n, t in lines.items()} for name, lines in data["lines"].items()})


def _digest(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


# --------------------------------------------------------------------------------------------------------------- the planting


def run_tests(fault: Fault, recording: Recording, marks: str, tree: Tree, log: Path) -> tuple[str, float]:
    """Return ``noticed``, ``timeout`` or ``unnoticed``, and how long it took."""
    tests = recording.tests_of(fault, MOST_SECONDS[marks])
    if not tests:
        return "unreached", 0.0
    began = time.monotonic()
    limit = 2 * sum(recording.seconds[test] for test in tests) + LEAST_SECONDS
    longest = 3 * max(recording.seconds[test] for test in tests) + LEAST_SECONDS / 2

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        return run_pytest(tree, [*tests, f"--timeout={longest}", "--timeout-method=thread"])

    code = forked(work, limit, log)
    verdict = "timeout" if code is None else "unnoticed" if code == 0 else "noticed"
    return verdict, time.monotonic() - began


def noticed(verdict: str) -> bool:
    """Return whether the tests noticed the fault."""
    return verdict in ("noticed", "timeout")


def plant(arguments: argparse.Namespace) -> None:
    """Plant the faults that have no result yet, and write the results."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    ignored = equivalents()
    areas = arguments.areas or list(AREAS)
    each = arguments.per_area or -(-arguments.total // len(areas))
    for name in IMPORTED_ONCE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="palestra-faults-") as temporary:
        tree = Tree(Path(temporary) / "tree")
        recordings = arguments.recordings or Path(temporary) / "recordings"
        recordings.mkdir(parents=True, exist_ok=True)
        for area in areas:
            recording = {
                marks: record(area, marks, tree, recordings) for marks in ([FAST] if arguments.fast_only else [FAST, SLOW])
            }
            tree.warm([test for test in AREAS[area][1] if (tree.folder / test).exists()], Path(temporary) / "log")
            faults = draw(area, arguments.seed, each, ignored)
            if arguments.again:
                faults = _planted_before(area, {key: entry for key, entry in results.items() if entry["area"] == area})
            for fault in faults:
                key = f"{area} {arguments.seed} {fault.key}"
                before = results.get(key)
                if before and (noticed(before["fast"]) or noticed(before["slow"])):
                    continue
                if before and not arguments.again and (before["slow"] or arguments.fast_only):
                    continue
                if arguments.again:
                    before = None
                if arguments.minutes and time.monotonic() - began > 60 * arguments.minutes:
                    print("the time is over; the same command goes on", flush=True)
                    return
                log = Path(temporary) / "log"
                fast, slow, seconds = before["fast"] if before else "", "", before["seconds"] if before else 0.0
                with tree.planted(fault):
                    if not before:
                        fast, seconds = run_tests(fault, recording[FAST], FAST, tree, log)
                    if not noticed(fast) and not arguments.fast_only:
                        slow, more = run_tests(fault, recording[SLOW], SLOW, tree, log)
                        seconds += more
                said = log.read_text(errors="replace")[-400:] if noticed(slow or fast) else ""
                results[key] = {
                    "area": area,
                    "seed": arguments.seed,
                    **fault._asdict(),
                    "fast": fast,
                    "slow": slow,
                    "seconds": round(seconds, 1),
                    "said": said,
                }
                print(f"{area} {fault.path}:{fault.line} {fault.change[:90]!r}: {fast} {slow} {seconds:.1f} s", flush=True)
                part = arguments.out.with_suffix(".part")
                part.write_text(json.dumps(results, indent=1))
                part.replace(arguments.out)


# ------------------------------------------------------------------------------------------------------------------- the gate


class _Recorder:
    """A plugin of a worker of pytest-xdist: after each test, a line of JSON with the lines that it has reached."""

    def __init__(self, folder: Path) -> None:
        import coverage

        plan = json.loads((folder / "plan.json").read_text())
        self.done, self.root = set(plan["done"]), Path.cwd()
        self.coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[str(self.root / name) for name in plan["sources"]]
        )
        self.coverage.start()
        os.environ["COVERAGE_PROCESS_START"] = str(folder / "processes.ini")  # coverage watches the processes of tests, too
        self.records = (folder / "records" / f"{time.time():.3f}-{os.getpid()}.jsonl").open("w", buffering=1)
        self.stages: dict[str, str] = {}
        self.digests: dict[str, str] = {}
        self.outcomes: set[str] = set()
        self.seconds = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            stage = "gate" if item.get_closest_marker("gate") else "all"
            self.stages[item.nodeid] = stage if item.get_closest_marker("slow") else "fast"
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.done])
        items[:] = [item for item in items if item.nodeid not in self.done]

    def _switch(self, phase: str, test: str) -> str:
        name = _file_of(test)
        digest = self.digests.get(name) or self.digests.setdefault(name, _digest([self.root / name]))
        os.environ["PALESTRA_FAULTS_CONTEXT"] = context = f"{digest} {phase} {test}"
        self.coverage.switch_context(context)
        return context

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.outcomes, self.seconds = set(), 0.0
        self.contexts = [self._switch("setup", nodeid)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self.contexts.append(self._switch("call", item.nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        self.outcomes.add(report.outcome)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        data = self.coverage.get_data()
        for context in self.contexts:
            self.records.write(_reached(data, context))
        outcome = next(name for name in ("failed", "skipped", "passed") if name in self.outcomes or name == "passed")
        record = {"test": nodeid, "digest": self.digests[_file_of(nodeid)], "stage": self.stages[nodeid], "outcome": outcome}
        self.records.write(json.dumps(record | {"seconds": round(self.seconds, 3), "at": time.time()}) + "\n")


def _reached(data: Any, context: str) -> str:
    data.set_query_context(context)
    lines = {name[name.index("src/palestra/") :]: reached for name in data.measured_files() if (reached := data.lines(name))}
    return json.dumps({"context": context, "lines": lines}) + "\n"


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Watch from the start, before conftest.py imports the package. pytest calls this for ``-p faults``."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pluginmanager.register(_Recorder(Path(os.environ["PALESTRA_FAULTS_FOLDER"])))


def _file_of(test: str) -> str:
    return test.partition("::")[0]


class GateRecording(Recording):
    """Which tests of ``.ci/run --all`` reach which lines of the files with a fault."""

    def __init__(self, folder: Path, tree: Tree) -> None:
        super().__init__({}, {})
        self.tree = tree
        self.stages: dict[str, str] = {}
        self.results: dict[str, dict[str, Any]] = {}
        times: list[tuple[float, float]] = []
        reached: dict[str, list[dict[str, Any]]] = {}
        digests: dict[str, str] = {}
        for path in sorted((folder / "records").glob("*.jsonl")):
            for text in path.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # the last line of a worker that was killed
                    entry = json.loads(text)
                    digest, phase, test = (
                        entry["context"].split(" ", 2) if "context" in entry else (entry["digest"], "", entry["test"])
                    )
                    name = _file_of(test)
                    if name not in digests:
                        digests[name] = _digest([tree.folder / name]) if (tree.folder / name).exists() else ""
                    if digest != digests[name]:
                        continue
                    if not phase:
                        self.results[test] = max(entry, self.results.get(test, entry), key=lambda result: result["at"])
                        times.append((float(path.name.partition("-")[0]), entry["at"]))
                    # What a fixture of a module reaches belongs to all tests of the file, not only to the first.
                    reached.setdefault(name if phase == "setup" else test, []).append(entry.get("lines", {}))
        self.minutes = until = 0.0
        for began, ended in sorted(dict(sorted(times)).items()):  # of each worker, when its last test ended
            self.minutes += max(0.0, ended - max(began, until)) / 60
            until = max(until, ended)
        for test, result in self.results.items():
            if result["outcome"] == "passed":
                self.seconds[test], self.stages[test] = result["seconds"], result["stage"]
                for lines in [*reached.get(test, []), *reached.get(_file_of(test), [])]:
                    for name, numbers in lines.items():
                        for line in numbers:
                            self.lines.setdefault(name, {}).setdefault(line, []).append(test)

    def stage_of(self, fault: Fault, stage: str) -> list[str]:
        """The tests of a stage that reach the fault. If it runs at import, those that reach its file; if none does, any."""
        source = (self.tree.folder / fault.path).read_bytes()
        last = source.count(b"\n", 0, fault.stop) + 1
        own = self.lines.get(fault.path, {})
        tests = {test for line in range(fault.line, last + 1) for test in own.get(line, [])}
        if not tests or _runs_at_import(source, fault.line):
            tests = {test for reached in own.values() for test in reached} or set(self.seconds)
        module, room = f"test_{Path(fault.path).stem}.", ("tests", *Path(fault.path).relative_to("src/palestra").parent.parts)

        def distance(test: str) -> int:
            """How far above the room's own folder of tests the test is, such as 1 in tests/sandbox for sandbox/inside."""
            parts = Path(_file_of(test)).parent.parts
            return next(up for up in range(len(room)) if parts[: len(room) - up] == room[: len(room) - up])

        return self.within(
            STAGES[stage],
            sorted(
                (test for test in tests if self.stages[test] == stage),
                key=lambda test: (module not in test, distance(test), self.seconds[test], test),
            ),
        )


def _runs_at_import(source: bytes, line: int) -> bool:
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return not any(node.body[0].lineno <= line <= (node.end_lineno or 0) for node in functions)


def record_gate(faults: Sequence[Fault], tree: Tree, folder: Path, tests: Sequence[str]) -> GateRecording:
    """Run what ``.ci/run --all`` runs, as far as ``folder`` has no record of it."""
    digests = {fault.path: _digest([tree.folder / fault.path]) for fault in faults}
    sources = json.loads((folder / "sources.json").read_text()) if (folder / "sources.json").exists() else {}
    if sum(sources.get(name) == digest for name, digest in digests.items()) < 0.9 * len(digests):
        for name in ("records", "processes"):
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
        (folder / "sources.json").write_text(json.dumps(sources := digests))
    watched = "".join(f"\n    {tree.folder / name}" for name in sources)
    part = folder / "processes" / "part"
    settings = f"parallel = true\ndata_file = {part}\ncontext = ${{PALESTRA_FAULTS_CONTEXT-}}\ninclude ={watched}\n"
    (folder / "processes.ini").write_text(f"[run]\n{settings}")
    elsewhere = re.search(r'^here="not alone and (.*?)"', (tree.folder / ".ci" / "run").read_text(), re.MULTILINE)
    assert elsewhere, '.ci/run has no line here="not alone and ..."'
    bridges = re.compile(r"^pytestmark.*mark\.bridges", re.MULTILINE)
    unread = [name for name in _test_files(tree, tests) if bridges.search((tree.folder / name).read_text())]
    ignored = [f"--ignore={name}" for name in unread]
    ran = ("passed", "skipped", "failed")
    passes = {
        "two workers": (["-n", "2", "--dist", "worksteal", "-m", f"not alone and {elsewhere[1]}", *ignored, *tests], ran),
        "alone": (["-n", "1", "-m", f"alone and {elsewhere[1]}", *ignored, *tests], ran),
        "failed once": (["-n", "1", "-m", elsewhere[1]], ("passed", "skipped")),
    }
    for name, (options, outcomes) in passes.items():
        _take_in(folder)
        results = GateRecording(folder, tree).results
        again = sorted({_file_of(test) for test, result in results.items() if result["outcome"] == "failed"})
        if name == "failed once" and not again:
            continue
        done = [test for test, result in results.items() if result["outcome"] in outcomes]
        (folder / "plan.json").write_text(json.dumps({"sources": list(sources), "done": done}))
        log = folder / f"{name.replace(' ', '-')}.log"
        began = time.monotonic()
        code = _record_pass([*options, *(again if name == "failed once" else [])], tree, folder, log)
        print(f"recorded, {name}: {time.monotonic() - began:.0f} s", flush=True)
        if code not in (0, 1, 5) or (code == 1 and GateRecording(folder, tree).results == results):
            raise SystemExit(f"the tests could not be recorded (exit code {code}): see {log}")
    _take_in(folder)
    recording = GateRecording(folder, tree)
    for name in digests.keys() - {name for name, digest in sources.items() if digest == digests.get(name)}:
        print(f"{name}: changed since the recording, so its fault runs the tests of its folder, and then any", flush=True)
        recording.lines.pop(name, None)
    for test, result in recording.results.items():
        if result["outcome"] == "failed":
            print(f"{test} does not pass without a fault, and is left out", flush=True)
    return recording


def _test_files(tree: Tree, tests: Sequence[str]) -> list[str]:
    paths = [
        path
        for test in tests
        for path in ((tree.folder / test).rglob("test_*.py") if (tree.folder / test).is_dir() else [tree.folder / test])
    ]
    return sorted(str(path.relative_to(tree.folder)) for path in paths)


def _record_pass(arguments: Sequence[str], tree: Tree, folder: Path, log: Path) -> int:
    paths = [tree.folder / "src", tree.folder, tree.folder / "scripts"]
    changed = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PALESTRA_FAULTS_FOLDER": str(folder),
        "PALESTRA_TEST_SHARD": "1/1",
        "PYTHONHASHSEED": "0",  # both workers have to find the same names of tests
    }
    base = tempfile.mkdtemp(dir=tree.folder.parent)
    options = [
        "-p",
        "faults",
        "-p",
        "no:cacheprovider",
        "--timeout=900",
        "--continue-on-collection-errors",
        f"--basetemp={base}/t",
        "-q",
    ]
    command = [sys.executable, "-m", "pytest", *options, "--durations=15", "--tb=short", *arguments]
    with log.open("ab") as out:
        done = subprocess.run(
            command, cwd=tree.folder, env=os.environ | changed, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        )
    shutil.rmtree(base, ignore_errors=True)
    return done.returncode


def _take_in(folder: Path) -> None:
    """Move what coverage has seen in the processes of tests to the records."""
    import coverage

    with (folder / "records" / "processes.jsonl").open("a") as records:
        for path in sorted((folder / "processes").iterdir()):
            with contextlib.suppress(coverage.CoverageException):  # of a process that was killed while it wrote
                data = coverage.CoverageData(str(path))
                data.read()
                for context in filter(None, data.measured_contexts()):
                    records.write(_reached(data, context))
            path.unlink()


class _Chosen:
    """A plugin: of the files given, these tests only, file by file; and which one failed."""

    def __init__(self, tests: Sequence[str], failed: Path) -> None:
        self.files = {name: place for place, name in enumerate(dict.fromkeys(map(_file_of, tests)))}
        self.tests, self.failed = set(tests), failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.tests), key=lambda item: self.files[_file_of(item.nodeid)]
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.failed:
            self.failed.write_text(report.nodeid)


def _run(tests: Sequence[str], seconds: dict[str, float], tree: Tree, log: Path) -> tuple[str, str]:
    """Return ``noticed``, ``timeout`` or ``unnoticed``, and the test, or the file of tests, that failed."""
    failed = log.with_suffix(".failed")
    failed.unlink(missing_ok=True)
    files = list(dict.fromkeys(map(_file_of, tests)))
    limit = 2 * sum(seconds[test] for test in tests) + LEAST_SECONDS + 2 * len(files)  # a file may take a second to import
    longest = 3 * max(seconds[test] for test in tests) + LEAST_SECONDS / 2

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        return run_pytest(tree, [*files, f"--timeout={longest}", "--timeout-method=thread"], [_Chosen(tests, failed)])

    code = forked(work, limit, log)
    verdict = "timeout" if code is None else "unnoticed" if code in (0, 5) else "noticed"
    return verdict, failed.read_text() if failed.exists() else ""


def try_stage(fault: Fault, tests: list[str], seconds: dict[str, float], tree: Tree, log: Path) -> tuple[str, str]:
    """Return the verdict of these tests, and which one noticed. One that fails without the fault, too, has noticed nothing."""
    while tests:
        with tree.planted(fault):
            verdict, failed = _run(tests, seconds, tree, log)
        if not noticed(verdict):
            return verdict, ""
        suspects = [test for test in tests if failed in (test, _file_of(test))] or tests[: None if verdict == "timeout" else 1]
        said = log.read_text(errors="replace")[-400:]
        if not noticed(_run(suspects, seconds, tree, log)[0]):
            log.write_text(said)
            return verdict, failed
        print(f"{failed or suspects[0]} fails without the fault, too, and is left out", flush=True)
        tests = [test for test in tests if test not in suspects]
    return "unreached", ""


def gate(arguments: argparse.Namespace) -> None:
    """Record, plant and report. The same command continues what was interrupted."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    listing = subprocess.run([sys.executable, "-m", "tests.conftest"], cwd=ROOT, capture_output=True, text=True, check=True)
    core = [name.removeprefix("tests/") for name in listing.stdout.split() if not name.endswith(".py")]
    drawn = draw_rooms(arguments.rooms, core, equivalents())
    out = folder / "results.json"
    with tempfile.TemporaryDirectory(prefix="palestra-faults-") as temporary:
        tree, log = Tree(Path(temporary) / "tree"), Path(temporary) / "log"
        recording = record_gate(list(drawn.values()), tree, folder, arguments.tests)
        stored = json.loads(out.read_text()) if out.exists() else {}
        python = sorted(path for top in ("src", "tests") for path in (tree.folder / top).rglob("*.py"))
        state = _digest(python)
        results: dict[str, Any] = stored.get("results", {}) if arguments.again or stored.get("state") == state else {}
        if arguments.again:
            results = {key: entry for key, entry in results.items() if entry["stage"] in ("fast", "gate")}
        for name in IMPORTED_ONCE:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        tree.warm(sorted(set(map(_file_of, recording.seconds))), log)
        for room, fault in drawn.items():
            if fault.key not in results:
                results[fault.key] = entry = plant_in_room(room, fault, recording, tree, log)
                noticed_by = entry["stage"] or "nothing"
                print(f"{room}: {fault.path}:{fault.line} {fault.change[:80]!r}: {noticed_by} {entry['seconds']} s", flush=True)
                part = out.with_suffix(".part")
                part.write_text(json.dumps({"state": state, "results": results}, indent=1))
                part.replace(out)
    report_gate([results[fault.key] for fault in drawn.values()], core, recording)


def plant_in_room(room: str, fault: Fault, recording: GateRecording, tree: Tree, log: Path) -> dict[str, Any]:
    """Run the stages until one notices the fault."""
    began = time.monotonic()
    entry: dict[str, Any] = {"room": room, **fault._asdict(), "stage": "", "by": "", "said": "", "ran": {}}
    for stage in STAGES:
        tests = recording.stage_of(fault, stage)
        verdict, by = try_stage(fault, tests, recording.seconds, tree, log)
        entry["ran"][stage] = len(tests)
        if noticed(verdict):
            entry |= {"stage": stage, "by": by or verdict, "said": log.read_text(errors="replace")[-400:]}
            break
    return entry | {"seconds": round(time.monotonic() - began, 1)}


def report_gate(rows: Sequence[dict[str, Any]], core: Sequence[str], recording: GateRecording) -> None:
    """Print what noticed each fault. Fail if ``--all`` alone notices too many, or nothing notices one of the core."""
    counts = {stage: sum(entry == stage for entry in recording.stages.values()) for stage in STAGES}
    print(f"\ntests: {counts}; recorded in {recording.minutes:.0f} minutes: an upper bound of the tests of --all\n")
    print(f"{'room':<26}{'noticed by':<12}{'tests':<16}{'seconds':>8}  fault, and the test that noticed it")
    for entry in rows:
        ran = "+".join(map(str, entry["ran"].values()))
        columns = f"{entry['room']:<26}{entry['stage'] or 'nothing':<12}{ran:<16}{entry['seconds']:>8}"
        print(f"{columns}  {entry['path']}:{entry['line']} {entry['change'][:80]}\n{'':<64}{entry['by']}")
    alone = [entry for entry in rows if entry["stage"] == "all"]
    nothing = [entry for entry in rows if not entry["stage"]]
    unclosed = [entry for entry in nothing if is_core(entry["room"], core)]
    caught = len(rows) - len(alone) - len(nothing)
    print(f"\nof {len(rows)} faults: {caught} noticed by the gate, {len(alone)} by --all alone, {len(nothing)} by nothing\n")
    for title, entries in (("by --all alone", alone), ("by nothing", nothing)):
        for entry in entries:
            print(f"{title}: {entry['path']}:{entry['line']}  {entry['change']}\n    {entry['statement']}")
    if len(alone) > ALONE:
        raise SystemExit(f"--all alone notices {len(alone)} faults of {len(rows)}; at most {ALONE} is allowed")
    if unclosed:
        raise SystemExit(f"nothing notices {len(unclosed)} faults of the core: write tests, or list them in {EQUIVALENT.name}")


# ---------------------------------------------------------------------------------------------------------------- the result


def show(arguments: argparse.Namespace) -> None:
    """Print how many faults were noticed, and those that were not."""
    ignored = equivalents()
    results = [entry for path in arguments.files for entry in json.loads(path.read_text()).values()]
    print(f"{'area':<12}{'faults':>8}{'equivalent':>12}{'by fast':>9}{'by slow':>9}{'no test':>9}{'share':>8}")
    every: list[tuple[bool, bool]] = []
    open_faults = []
    for area in AREAS:
        rows = [entry for entry in results if entry["area"] == area]
        if not rows:
            continue
        counted = [entry for entry in rows if _key(entry) not in ignored]
        fast = [noticed(entry["fast"]) for entry in counted]
        both = [now or noticed(entry["slow"]) for now, entry in zip(fast, counted, strict=True)]
        every += zip(both, fast, strict=True)
        open_faults += [entry for entry, seen in zip(counted, both, strict=True) if not seen]
        share = f"{100 * sum(both) / max(len(both), 1):.0f} %"
        print(
            f"{area:<12}{len(rows):>8}{len(rows) - len(counted):>12}{sum(fast):>9}{sum(both) - sum(fast):>9}"
            f"{len(both) - sum(both):>9}{share:>8}"
        )
    shares = [100 * sum(column) / max(len(every), 1) for column in zip(*every, strict=True)] or [0.0, 0.0]
    print(f"noticed: {shares[0]:.1f} % of {len(every)}, by fast tests {shares[1]:.1f} %\n")
    for entry in open_faults:
        print(f"{entry['path']}:{entry['line']}  {entry['change']}\n    {entry['statement']}")
    if arguments.require and (shares[0] < arguments.require[0] or shares[1] < arguments.require[1]):
        raise SystemExit(f"required: {arguments.require[0]} % and {arguments.require[1]} %")


def _key(entry: dict[str, Any]) -> str:
    return Fault(**{name: entry[name] for name in Fault._fields}).key


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    planting = commands.add_parser("plant", help="plant faults and run the tests")
    planting.add_argument("--areas", nargs="+", choices=list(AREAS), help="by default all")
    planting.add_argument("--seed", type=int, default=0)
    planting.add_argument("--total", type=int, default=60, help="faults over all areas")
    planting.add_argument("--per-area", type=int, help="faults in each area, instead of --total")
    planting.add_argument("--minutes", type=float, help="stop after this time; the same command continues")
    planting.add_argument("--again", action="store_true", help="plant those of the file again that were not noticed")
    planting.add_argument("--fast-only", action="store_true", help="leave the slow tests out")
    planting.add_argument("--recordings", type=Path, help="folder that keeps which tests reach which lines")
    planting.add_argument("--out", type=Path, required=True, help="file of results")
    planting.set_defaults(run=plant)
    showing = commands.add_parser("show", help="print a table, and what was not noticed")
    showing.add_argument("files", nargs="+", type=Path)
    showing.add_argument("--require", nargs=2, type=float, metavar=("ALL", "FAST"), help="fail below these percentages")
    showing.set_defaults(run=show)
    gating = commands.add_parser("gate", help="ask what the gate loses against .ci/run --all")
    gating.add_argument(
        "--folder", type=Path, required=True, help="folder that keeps recordings and results; the same command continues"
    )
    gating.add_argument("--rooms", type=int, default=ROOMS, help="how many rooms have a fault")
    gating.add_argument("--tests", nargs="+", default=["tests"], help="for a trial: record these tests only")
    gating.add_argument("--again", action="store_true", help="plant those again that the gate did not notice")
    gating.set_defaults(run=gate)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
