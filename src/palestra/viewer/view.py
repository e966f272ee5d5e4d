"""``palestra view``: serve runs on this machine, or write them into one file."""

import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from palestra.durable import replacing
from palestra.viewer.index import open_runs
from palestra.viewer.page import static_page
from palestra.viewer.server import ViewerServer

__all__ = ["export_runs", "view"]


def view(paths: Sequence[Path], *, port: int = 0, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Serve the runs in ``paths`` until Ctrl-C, which raises ``KeyboardInterrupt``. ``say`` receives the address to print."""
    runs = open_runs(paths)
    with ViewerServer(runs, port=port, title=_title([run.name for run in runs])) as server:
        say(f"{server.url}  (press Ctrl-C to stop)")
        if browser:
            webbrowser.open(server.url)
        server.serve_forever()


def export_runs(paths: Sequence[Path], out: Path, *, title: str = "") -> None:
    """Write the runs in ``paths`` into one self-contained page, episode by episode."""
    runs = open_runs(paths)
    for run in runs:
        run.refresh()
    with replacing(out, "--export") as draft, open(draft, "w", encoding="utf-8") as file:
        title = title or _title([run.name for run in runs])
        beside = {f"metrics-{number}": run.metrics() for number, run in enumerate(runs)}
        beside |= {f"vocabulary-{number}": run.vocabulary() for number, run in enumerate(runs)}
        file.writelines(static_page([run.page for run in runs], [run.lines() for run in runs], title=title, beside=beside))


def _title(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} runs"
