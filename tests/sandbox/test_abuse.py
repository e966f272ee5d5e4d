import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sandbox.abuse import CORPUS

from palestra.sandbox import Program, Unboxed

ROOT = Path(__file__).parents[2]
AS_ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play both parts")


OWN_UID = "12346"
"""No other test has processes of this user: the run looks at all of them."""


@pytest.mark.gate
@pytest.mark.parametrize(
    "uid", [pytest.param(None, id="as-we-are"), pytest.param(OWN_UID, id="unprivileged", marks=AS_ROOT_ONLY)]
)
@pytest.mark.slow
def test_nothing_gets_out_and_nothing_is_left(uid: str | None) -> None:
    pytest.importorskip("pyseccomp")
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "tests.sandbox.abuse_run", *([uid] if uid else [])]
    report = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout)
    assert [row for row in report["rows"] if not row["contained"]] == []
    assert len({row["name"] for row in report["rows"]}) == len(report["rows"]) >= 120
    assert report["after"] == report["before"]
    assert report["uid"] == (int(uid) if uid else os.getuid())


async def test_the_corpus_bites_where_there_is_no_box(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("CANARY")
    with pytest.warns(UserWarning, match="your own rights"):
        sandbox = Unboxed()
    harmless = ("a host file", "passwd", "netlink", "UDP", "memfd", "see host processes", "kill a host process", "open_tree")
    attempts = {attempt.name: attempt.code for attempt in CORPUS}
    async with sandbox:
        for name in harmless:
            code = attempts[name].replace("CANARY_FILE", str(canary)).replace("HOST_PID", str(os.getpid()))
            outcome = await sandbox.run(Program(code=code))
            if name != "open_tree" or os.geteuid() == 0:
                assert b"BREACH" in outcome.stdout, name
