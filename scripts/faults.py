#!/usr/bin/env python
"""Plant faults in the source, one at a time, and record which of them the tests notice.

    python scripts/faults.py plant --out faults.json                          60 faults over all areas, drawn with seed 0
    python scripts/faults.py plant --areas durable --per-area 40 --seed 3 --out durable.json
    python scripts/faults.py plant --again --seed 3 --out durable.json        the unnoticed ones once more
    python scripts/faults.py show faults.json                                 a table, and what was not noticed
    python scripts/faults.py show faults.json --require 90 80                fail below these percentages: all tests, fast tests

A fault changes a single statement: a comparison, an operator, a constant or a condition; or it drops a return value, swaps two
arguments, or removes the statement. A statement is drawn from all statements of an area by the seed, and then one of its
faults. The tests of the area run once, and coverage records which test reaches which line. Each fault is planted in a copy of
the tree, never in the tree itself, and only the tests that reach its line run: the fast ones, then the slow ones if no fast one
noticed. A test that fails, hangs or crashes has noticed the fault.

``scripts/faults_equivalent.toml`` lists the faults that change no behavior, each with its reason. They count in no share. A
fault is known by its file, its statement and its change, not by its line, so the list survives other edits.

The process that plants imports the large packages once, and forks for every fault. The file of results is written after each
fault; the same command continues it.
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

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("faults_equivalent.toml")

TRAINING = "src/palestra/training"
AREAS: dict[str, tuple[list[str], list[str]]] = {
    "rollout": (["src/palestra/rollout"], ["tests/rollout"]),
    "grading": (["src/palestra/grading"], ["tests/grading"]),
    "durable": (["src/palestra/durable"], ["tests/durable"]),
    "statistics": (["src/palestra/statistics.py"], ["tests/test_statistics.py", "tests/evaluation/test_stopped.py"]),
    "wrappers": (["src/palestra/wrappers"], ["tests/wrappers"]),
    "adapters": (["src/palestra/adapters"], ["tests/adapters"]),
    "trajectory": (
        ["src/palestra/trajectory", "src/palestra/segments.py"],
        ["tests/trajectory", "tests/test_trajectory.py", "tests/test_segments.py"],
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
    statements = _statements_of(area)
    rng = random.Random(f"{area} {seed}")
    rng.shuffle(statements)
    chosen = [rng.choice(faults) for faults in statements]
    return [fault for fault in chosen if fault.key not in skipped][:count]


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
        forked(lambda: pytest_in(self, ["--collect-only", *tests], compiling=True), 600, log)

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


def pytest_in(tree: Tree, arguments: Sequence[str], plugins: Sequence[object] = (), *, compiling: bool = False) -> int:
    """Run pytest in this process, which is a fork and ends with it, on the copy of the tree."""
    os.chdir(tree.folder)
    os.environ["PYTHONPATH"] = f"{tree.folder / 'src'}{os.pathsep}{tree.folder}"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = not compiling
    sys.path[:0] = [str(tree.folder / "src"), str(tree.folder)]
    import pytest

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
        chosen: list[str] = []
        left = most
        for test in sorted(
            set(tests) & self.seconds.keys(), key=lambda name: (f"test_{stem}." not in name, self.seconds[name])
        ):
            if self.seconds[test] <= left:
                chosen.append(test)
                left -= self.seconds[test]
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
            code = pytest_in(tree, [*changed, "-m", marks, "--maxfail=1000"], [watch])
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
        return pytest_in(tree, [*tests, f"--timeout={longest}", "--timeout-method=thread"])

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
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
