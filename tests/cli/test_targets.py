import os
import subprocess
import sys
from pathlib import Path

import pytest

from palestra.cli.targets import check_folder
from palestra.errors import UsageError


def test_a_folder_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    assert check_folder(tmp_path / "new" / "deeper") == tmp_path / "new" / "deeper"
    assert not list(tmp_path.iterdir())
    (tmp_path / "page.html").write_text("mine")
    check_folder(tmp_path)
    assert (tmp_path / "page.html").read_text() == "mine"


@pytest.mark.parametrize("target", ["file", "file/deeper"])
def test_a_folder_that_cannot_be_written_is_refused_with_the_option(target: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"(Not a directory|is a file).*--export"):
        check_folder(tmp_path / target, "--export")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.slow
def test_missing_permissions_are_seen_beforehand(tmp_path: Path) -> None:
    # In a child: permissions do not bind root, and a process that is another user cannot become root again.
    code = (
        "import os, sys, random; from pathlib import Path; from palestra.cli import targets\n"
        "os.setuid(65534)\n"
        "try: targets.check_folder(Path(sys.argv[1]))\n"
        "except Exception as error: sys.exit(f'{type(error).__name__}: {error}')"
    )
    for folder in (*tmp_path.parents[:2], tmp_path):
        folder.chmod(0o755)
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "new")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=own)
    assert done.stderr.startswith("UsageError: cannot write"), done.stderr
    assert "Permission denied. Name another" in done.stderr
