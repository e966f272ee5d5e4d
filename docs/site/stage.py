"""Gathers the sources of the documentation site in one folder, from which Zensical builds it (see scripts/site.sh).

    python docs/site/stage.py FOLDER

The pages are those of ``docs/``, unchanged but for links that leave the folder: README is the front page, ``docs/index.md`` the
list of all pages, and files that a page links to, such as examples, become pages that show them. Generated here are the API
reference (``api.py``), the gallery (``gallery.py``), ``llms.txt`` and ``llms-full.txt`` (``llms.py``), and the navigation,
which follows the sections and links of ``docs/index.md``.
"""

import re
import shutil
import sys
from pathlib import Path

import api
import gallery
import llms

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MOVED = {
    "README.md": "index.md",
    "docs/index.md": "contents.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages whose place in the site is not their place below ``docs/``."""
SHOWN = {".py": "python", ".ts": "typescript", ".yaml": "yaml", ".toml": "toml", ".sh": "bash", ".sbatch": "bash"}
"""Files that become pages of their own if a page links to them."""
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
SECTIONS = ("Tutorials", "How-to guides", "Coming from", "Reference", "Results", "Design")
"""The sections of ``docs/index.md`` that are tabs of the navigation."""

Nav = list[dict[str, "str | Nav"]]


def place(source: Path) -> str:
    """Return where a file of the repository stands in the site."""
    name = source.relative_to(ROOT).as_posix()
    if name in MOVED:
        return MOVED[name]
    if source.suffix == ".md" or name.startswith(("docs/images/", "docs/reference/", "docs/results/")):
        return name.removeprefix("docs/")
    if source.is_dir():
        return f"files/{name}.md"
    return f"files/{name}.md" if source.suffix in SHOWN or not source.suffix else name


def pages() -> list[Path]:
    """Return the Markdown files that are pages of the site."""
    return [*(ROOT / name for name in MOVED), *sorted(set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "index.md"})]


class Stage:
    """The folder that is filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.linked: set[Path] = set()
        """Files that pages link to, and that are not pages."""

    def write(self, name: str, text: str) -> None:
        """Write a page."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def page(self, source: Path) -> None:
        """Write a page of the repository, with its links adapted."""
        where = place(source)
        self.write(where, LINK.sub(lambda found: self._adapted(found, source, where), source.read_text()))

    def _adapted(self, found: re.Match[str], source: Path, where: str) -> str:
        before, target, anchor, after = found.groups()
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        file = (source.parent / target).resolve()
        if not file.exists():
            raise SystemExit(f"{source.relative_to(ROOT)} links to {target}, which does not exist")
        if file.suffix != ".md":
            self.linked.add(file)
        up = "../" * where.count("/")
        return f"{before}{up}{place(file)}{anchor or ''}{after}"

    def file(self, source: Path) -> None:
        """Put a linked file into the site: code as a page that shows it, all else as it is."""
        where = place(source)
        name = source.relative_to(ROOT).as_posix()
        if source.is_dir():
            lines = [f"- [{one.name}]({source.name}/{one.name}.md)" for one in sorted(source.glob("*.py"))]
            self.linked |= set(source.glob("*.py"))
            self.write(where, "\n".join([f"# {name}", "", *lines, ""]))
        elif where.endswith(".md"):
            fence = f"~~~~{SHOWN.get(source.suffix, 'text')}"
            self.write(where, f"# {name}\n\n{fence}\n{source.read_text().rstrip()}\n~~~~\n")
        else:
            (self.folder / where).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, self.folder / where)


def capital(text: str) -> str:
    """Return ``text`` in one line and with its first letter in upper case."""
    text = " ".join(text.replace("`", "").split())
    return text[:1].upper() + text[1:]


def entries(text: str) -> Nav:
    """Return the links of a part of ``docs/index.md`` as entries of the navigation."""
    return [
        {capital(title): target}
        for title, target in re.findall(r"\[([^]]+)\]\(([^)#]+\.md)\)", text)
        if not target.startswith("..")
    ]


def navigation(index: str, reference: Nav, families: Nav) -> Nav:
    """Return the navigation: the sections of the index, and what is generated."""
    parts = dict(re.findall(r"^## ([^:\n]+).*?\n(.*?)(?=^## |\Z)", index, re.MULTILINE | re.DOTALL))
    nav: Nav = [{"Home": "index.md"}]
    for section in SECTIONS:
        rows = re.findall(r"^\| ([A-Z][^|]*) \| (\[.*) \|$", parts[section], re.MULTILINE)
        inside: Nav = [{name: entries(row)} for name, row in rows] or entries(parts[section])
        if section == "Reference":
            nav.append({"Environments": [{"Gallery": "gallery.md"}, *families]})
            inside = [one for one in inside if next(iter(one.values())) != "reference/suite/index.md"]  # stands in the gallery
        nav.append({section: inside})
        if section == "Reference":
            nav.append({"API": reference})
    about: Nav = [
        {"All pages": "contents.md"},
        *({capital(name): f"{name}.md"} for name in ("changelog", "contributing", "security")),
    ]
    return [*nav, {"About": about}]


def toml(nav: "str | Nav") -> str:
    """Return the navigation as a TOML value."""
    if isinstance(nav, str):
        return f'"{nav}"'
    return "[" + ", ".join(f'{{"{title}" = {toml(inside)}}}' for one in nav for title, inside in one.items()) + "]"


def main(folder: Path) -> None:
    """Fill ``folder`` with the configuration and, in ``pages``, the pages."""
    shutil.rmtree(folder, ignore_errors=True)
    stage = Stage(folder / "pages")
    for source in pages():
        stage.page(source)
    done: set[Path] = set()
    while todo := stage.linked - done:
        for source in sorted(todo):
            stage.file(source)
        done |= todo
    reference = api.write(stage.write, ROOT / "src")
    families = gallery.write(stage.write)
    for asset in ("site.css", "gallery.js"):
        shutil.copyfile(HERE / asset, stage.folder / asset)
    nav = navigation((ROOT / "docs" / "index.md").read_text(), reference, families)
    settings = (HERE / "zensical.toml").read_text()
    (folder / "zensical.toml").write_text(
        settings.replace("nav = []", f"nav = {toml(nav)}").replace("SOURCE", str(ROOT / "src"))
    )
    llms.write(stage.write, stage.folder, nav)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
