"""Types what the documentation tells authors of environments to type, in a virtual environment that holds the wheel alone.

    python scripts/authors_path.py .ci/wheel-venv

The lines come from tutorial 2, from what ``palestra new env`` prints, and from the README of the package that it writes. Each
line must succeed; a game that waits for a move gets the end of its input. Only training needs more than the wheel: without
torch it must end with the sentence that names the extra.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = ROOT / "docs" / "tutorials" / "02-write-an-environment.md"
TRAINING = "palestra train "


def typed_lines(markdown: str) -> list[str]:
    """Return the lines with a prompt in the console blocks of a page."""
    blocks = re.findall(r"^```console\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [re.sub(r"\s+#.*$", "", line) for line in lines]


def printed_lines(output: str) -> list[str]:
    """Return the indented lines that ``palestra new env`` prints."""
    return [line.strip() for line in output.splitlines() if line.startswith("  ")]


class Author:
    """Somebody with a virtual environment and a folder."""

    def __init__(self, venv: Path, folder: Path) -> None:
        self.environment = {**os.environ, "VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin"}
        for variable in ("PYTHONPATH", "PYTEST_ADDOPTS", "PALESTRA_TEST_EXTRAS"):
            self.environment.pop(variable, None)
        self.folder = folder

    def types(self, lines: list[str]) -> str:
        """Type the lines into one shell, which ends at the first that fails. Return what they printed."""
        for line in lines:
            print(f"$ {line}", flush=True)
        script = "set -eo pipefail\n" + "\n".join(lines)
        done = subprocess.run(["bash", "-c", script], **self._how(), check=False)
        if done.returncode:
            raise SystemExit(f"{done.stdout}\nthe documented path of authors broke: exit code {done.returncode}")
        return done.stdout

    def cannot_train(self, line: str, folder: str) -> None:
        """Type a line that trains, and expect the sentence that names the missing extra."""
        print(f"$ {line}    (without torch)", flush=True)
        done = subprocess.run(["bash", "-c", f"cd {folder}\n{line}"], **self._how(), check=False)
        if done.returncode != 2 or "training needs torch" not in done.stdout or "palestra[train]" not in done.stdout:
            raise SystemExit(f"{done.stdout}\nexpected exit code 2 and what to install, got {done.returncode}")

    def _how(self) -> dict:
        return {
            "cwd": self.folder,
            "env": self.environment,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
        }


def main(venv: Path) -> None:
    """Walk the whole path in a new folder."""
    began = monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        author = Author(venv, folder)
        shutil.copy(ROOT / "docs" / "snippets" / "parity.py", folder)
        author.types(typed_lines(TUTORIAL.read_text()))

        printed = printed_lines(author.types(["palestra new env my-lock"]))
        author.types([line for line in printed if not line.startswith(TRAINING) and "[train]" not in line])
        read = [line for line in typed_lines((folder / "my-lock" / "README.md").read_text()) if line not in printed]
        author.types(["cd my-lock", *(line for line in read if not line.startswith(TRAINING))])
        for line in (*printed, *read):
            if line.startswith(TRAINING):
                author.cannot_train(line, "my-lock")
    print(f"the documented path of authors: every line works, {monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
