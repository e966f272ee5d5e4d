"""The metrics of a training run for Prometheus: a writer that answers ``GET /metrics`` while the run lasts.

``writers = ["prometheus"]`` in a recipe, or ``writers = [{use = "prometheus", port = 9465}]``. It listens on loopback; a
Prometheus on another machine needs ``host = "0.0.0.0"``. Every number of ``metrics.jsonl`` is a gauge with the name of the run
folder as label.
"""

import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.errors import UsageError
from palestra.foundation.telemetry.prometheus import CONTENT_TYPE, metric

if TYPE_CHECKING:
    from palestra.recipes.config import TrainConfig

__all__ = ["PrometheusWriter", "exposition"]


class PrometheusWriter:
    """Serves the metrics of the latest step on ``host:port``; port 0 takes a free one."""

    def __init__(self, folder: Path, config: "TrainConfig", port: int = 9464, host: str = "127.0.0.1") -> None:
        self._run = folder.name
        self._text = b""
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler())
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics on {host}:{port}: {error.strerror}. Choose another port in writers"
            ) from None
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        self._text = exposition(self._run, metrics).encode()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        writer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path == "/metrics"
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.end_headers()
                self.wfile.write(writer._text if is_known else b"GET /metrics\n")

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing: the terminal shows the run."""

        return Handler


def exposition(run: str, metrics: Mapping[str, Any]) -> str:
    """Return the numbers of ``metrics`` in Prometheus's text format."""
    lines: list[str] = []
    for name, value in sorted(metrics.items()):
        if isinstance(value, int | float):
            lines += metric(f"palestra_training_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}", "gauge", [({"run": run}, value)])
    return "\n".join(lines) + "\n"
