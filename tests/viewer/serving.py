"""A viewer that serves while a test runs."""

import threading
from collections.abc import Iterator
from pathlib import Path

from palestra.viewer import ViewerServer, open_runs

__all__ = ["serving"]


def serving(*folders: Path) -> Iterator[str]:
    """Yield the address of a viewer of ``folders``."""
    with ViewerServer(open_runs(folders)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()
