"""Pages tell the truth: every Python snippet is a file that runs, every link leads somewhere, every command exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from palestra.errors import MissingExtra

ROOT = Path(__file__).parents[2]
SNIPPETS = ROOT / "docs" / "snippets"
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.gate
@pytest.mark.parametrize(
    "snippet",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] * (path.name == "mcp_tools.py"))
        for path in sorted(SNIPPETS.glob("*.py"))
    ],
)
def test_snippet_runs(snippet: Path, tmp_path: Path) -> None:
    run_snippet(snippet, tmp_path)


def run_snippet(snippet: Path, folder: Path, warnings: str = "error") -> None:
    """Run a snippet in ``folder``; it must end without an error, and by default without a warning."""
    done = subprocess.run(
        [sys.executable, "-W", warnings, snippet], check=False, cwd=folder, capture_output=True, text=True, timeout=300
    )
    if missing := re.search(r"MissingExtra: (.*)", done.stderr):
        raise MissingExtra(missing[1])  # a skip that names the extra, or a failure where all are installed
    if module := re.search(r"No module named '(\w+)", done.stderr):
        raise ModuleNotFoundError(module[0], name=module[1])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_blocks_are_snippets(page: Path) -> None:
    blocks = re.findall(r"(?:<!-- snippet: (\S+) -->\n)?```python\n(.*?)```", page.read_text(), re.DOTALL)
    known = {path.read_text() for path in SNIPPETS.glob("*.py")}
    for name, code in blocks:
        if name:
            assert code == (SNIPPETS / name).read_text(), f"{page.name} shows another {name}"
        else:
            assert code in known, f"{page.name} has a Python block that is no snippet:\n{code}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_links_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page != index and page.parent.name != "suite"]
    links = set(re.findall(r"\]\(([^)#]+)", index.read_text()))
    assert [page.name for page in pages if page.relative_to(ROOT / "docs").as_posix() not in links] == []


def test_every_snippet_is_shown() -> None:
    shown = {name for page in PAGES for name in re.findall(r"<!-- snippet: (\S+) -->", page.read_text())}
    shown |= {path.name for path in SNIPPETS.glob("*.py") if any(path.read_text() in page.read_text() for page in PAGES)}
    assert {path.name for path in SNIPPETS.glob("*.py")} - shown == set()


@pytest.mark.gate
@pytest.mark.slow
def test_the_tutorial_environment_is_short_and_passes_the_check(tmp_path: Path) -> None:
    source = SNIPPETS / "parity.py"
    assert len(source.read_text().splitlines()) <= 30
    (tmp_path / "parity.py").write_text(source.read_text())
    command = [sys.executable, "-m", "palestra.cli", "check", "parity:Parity"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
