"""A program in the place of a Python with other packages: it ignores its arguments and runs a script of the test."""

import sys
from pathlib import Path

__all__ = ["fake_python"]


def fake_python(folder: Path, script: str) -> str:
    """Write the program into ``folder``, and return its path."""
    program = folder / "python"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    return str(program)
