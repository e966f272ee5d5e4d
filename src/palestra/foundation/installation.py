"""How to install an extra of Palestra beside the copy that runs.

The command follows from how this copy was installed: pip and uv write it into ``direct_url.json`` (PEP 610) if the copy came
from a folder, a file or an address. Otherwise the sentence names the extra and the page about installing. It never installs
``palestra`` by its name alone: on an index where we have not published, anybody may own the name.
"""

import importlib.util
import shlex
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

__all__ = ["how_to_install"]


def how_to_install(extra: str) -> str:
    """Return what to type to install ``extra``, or a sentence with the page to read.

    Example::

        raise MissingExtra(f"serving needs starlette: {how_to_install('serve')}")
    """
    target = _target(extra)
    if target is None:
        return f'install the extra "{extra}" of palestra as docs/how-to/install.md says'
    return f"{_installer()} install {target}"


def _target(extra: str) -> str | None:
    """Return the argument of ``install``, or ``None`` if this copy does not come from a place that is still there."""
    origin = _origin()
    url = str(origin.get("url", ""))
    if "dir_info" in origin:
        folder = Path(unquote(urlsplit(url).path))
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        return f"{editable}{shlex.quote(f'{folder}[{extra}]')}" if folder.is_dir() else None
    if "vcs_info" in origin:
        source = origin["vcs_info"]
        return shlex.quote(f"palestra[{extra}] @ {source['vcs']}+{url}@{source['commit_id']}")
    if not url or (url.startswith("file:") and not Path(unquote(urlsplit(url).path)).is_file()):
        return None
    return shlex.quote(f"palestra[{extra}] @ {url}")


@cache
def _origin() -> dict[str, Any]:
    """Return the content of ``direct_url.json``; empty if palestra came from an index or was not installed at all."""
    from importlib import metadata  # costs as much as half of this package

    try:
        text = metadata.distribution("palestra").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    origin: dict[str, Any] = msgspec.json.decode(text) if text else {}
    return origin


def _installer() -> str:
    """``pip``, or ``uv pip`` in a virtual environment without pip, which uv makes."""
    return "pip" if importlib.util.find_spec("pip") is not None else "uv pip"
