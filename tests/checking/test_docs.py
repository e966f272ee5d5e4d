"""What the page on checking says of scripts holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_a_class_of_a_script_is_checked_in_other_processes_too(tmp_path: Path) -> None:
    asking = """
if __name__ == "__main__":
    for target in (Parity, "demo:Parity-v0"):
        report = palestra.check_env(target, n=5)
        print(report.ok, *(finding.status for finding in report.findings if finding.check == "same-elsewhere"))
"""
    script = tmp_path / "script.py"
    script.write_text((DOCS / "snippets/parity.py").read_text(encoding="utf-8") + asking, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "True pass\nTrue pass\n", done.stdout + done.stderr
