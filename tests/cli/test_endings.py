"""Which error ends how: the one place that turns exceptions into sentences and exit codes."""

import errno
import re
import signal
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from palestra.cli import main
from palestra.cli.endings import EXTRAS, TRACEBACK_VARIABLE, ExitCode, Interrupted, answered, explain
from palestra.errors import InfrastructureError, SchemaError, UnknownEnv, UsageError
from palestra.foundation.installation import how_to_install

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def hooks_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An interrupted command changes how its process ends, which here is the process of the tests."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def run_that_raises(error: BaseException) -> int:
    def run() -> int:
        raise error

    return answered(run)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("write three"), ExitCode.MISUSED, "UsageError: write three"),
        (UnknownEnv("no such"), ExitCode.MISUSED, "UnknownEnv: no such"),
        (SchemaError("line 3"), ExitCode.MISUSED, "SchemaError: line 3"),
        (InfrastructureError("the box died"), ExitCode.FAILED, "the box died"),
        (ExceptionGroup("tasks", [UsageError("inner")]), ExitCode.MISUSED, "UsageError: inner"),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), ExitCode.MISUSED, "/root/x: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), ExitCode.MISUSED, "No space left on device"),
        (OSError(errno.ENOSPC, "No space", "runs/x/ledger"), ExitCode.MISUSED, "runs/x/ledger cannot be written: No"),
        (OSError(errno.EADDRINUSE, "Address already in use"), ExitCode.MISUSED, "--port"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), ExitCode.FAILED, "Start it"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), ExitCode.MISUSED, how_to_install("hf")),
        (ModuleNotFoundError("…", name="tantivy.query"), ExitCode.MISUSED, how_to_install("search")),
        (Interrupted("Type it again."), ExitCode.INTERRUPTED, "Interrupted. Type it again."),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "before the command began"),
    ],
)
def test_an_expected_error_is_one_sentence(
    error: BaseException, code: ExitCode, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_that_raises(error) == code
    printed = capsys.readouterr().err
    assert words in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        AssertionError(),
        ModuleNotFoundError("No module named 'palestra.nothing'", name="palestra.nothing"),
        OSError(errno.EBADF, "Bad file descriptor"),
        FileNotFoundError(errno.ENOENT, "No such file", str(ROOT / "src" / "palestra" / "viewer" / "page.html")),
        ExceptionGroup("tasks", [UsageError("inner"), KeyError("x")]),
    ],
    ids=repr,
)
def test_an_unexpected_error_is_a_bug_and_keeps_its_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(error) is None
    assert run_that_raises(error) == ExitCode.BUG
    printed = capsys.readouterr().err
    match = re.search(r"The traceback is in (\S+)", printed)
    assert match is not None
    file = Path(match.group(1))
    assert "raise error" in file.read_text()
    file.unlink()


@pytest.mark.parametrize("error", [RuntimeError, InfrastructureError])
@pytest.mark.parametrize("shown", ["", "1"])
def test_an_ending_holds_no_secret(
    error: type[Exception], shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "planted-service-token")
    monkeypatch.setenv(TRACEBACK_VARIABLE, shown)
    run_that_raises(error("no answer from https://me:hunter22@db.example with planted-service-token"))
    printed = capsys.readouterr().err
    if match := re.search(r"The traceback is in (\S+)", printed):
        file = Path(match.group(1))
        printed += file.read_text()
        file.unlink()
    assert (match is not None) == (error is RuntimeError)
    assert printed.count("https://***@db.example with ***") == 1 + (error is RuntimeError) + bool(shown)
    assert "hunter22" not in printed
    assert "planted-service-token" not in printed


def test_a_traceback_can_be_had_for_every_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(TRACEBACK_VARIABLE, "1")
    assert run_that_raises(UsageError("write three")) == ExitCode.MISUSED
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_every_package_of_an_extra_is_known_by_its_module() -> None:
    extras: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules: dict[str, set[str]] = {}
    for module, packages in metadata.packages_distributions().items():
        for package in packages:
            modules.setdefault(package.lower().replace("_", "-"), set()).add(module)
    for extra, requirements in extras.items():
        for requirement in map(Requirement, requirements):
            package = requirement.name.lower()
            if package == "palestra" or package not in modules:  # another extra, or not installed here
                continue
            if not requirement.specifier.contains(metadata.version(package)):  # as a newer setuptools, without the extra
                continue
            assert any(EXTRAS.get(module) for module in modules[package]), f"{package} of {extra}"
    assert set(EXTRAS.values()) <= set(extras)


@pytest.mark.parametrize(
    ("module", "line", "extra"),
    [
        ("torch", "model tiny -o model", "hf"),
        ("accelerate", "model fetch smollm2 -o model", "hf"),
        ("torch", "train recipe.toml", "train"),
        ("transformers", "eval hf:somewhere -e math:Sums -o run", "hf"),
        ("tantivy", "index search folder word", "search"),
        ("starlette", "serve math:Sums", "serve"),
        ("pyarrow", "import x.parquet --from parquet -o run", "data"),
        ("resvg_py", "plot training -o curves.png", "track"),
    ],
)
def test_a_missing_extra_is_answered_with_what_to_install(
    module: str, line: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for known in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, known)
    for ours in ("palestra.serve.server", "palestra.serve.http"):  # which have imported theirs already
        monkeypatch.delitem(sys.modules, ours, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.parquet").touch()
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "config.json").write_text("{}")
    (tmp_path / "training" / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.5}\n')
    assert main(line.split()) == ExitCode.MISUSED
    printed = capsys.readouterr().err
    assert how_to_install(extra) in printed
    assert "Traceback" not in printed
