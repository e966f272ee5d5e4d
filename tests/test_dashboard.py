"""The Grafana dashboard: every query is run by a real Prometheus, which scrapes the metrics that Palestra writes."""

import contextlib
import json
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from palestra.agents.counting import GatewayMetrics
from palestra.agents.recording import Recording
from palestra.foundation.telemetry.prometheus import CONTENT_TYPE
from palestra.serve.metrics import Metrics

pytestmark = pytest.mark.torch
DASHBOARD = json.loads((Path(__file__).parents[1] / "deploy" / "grafana" / "palestra.json").read_bytes())
QUERIES = {target["expr"]: panel["title"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
PATIENCE = 90.0


def growing_pages() -> dict[str, Callable[[], str]]:
    """The path of each exposition → its text, which grows with every scrape."""
    server, gateway = Metrics(), GatewayMetrics()

    def server_text() -> str:
        server.called("step", 0.02)
        server.faults["internal"] += 1
        server.refused += 1
        return server.text({"sessions": 2, "workers": 1, "connections": 1})

    def gateway_text() -> str:
        gateway.answered("/v1/messages", 200, 0.5)
        gateway.closed(Recording())
        return gateway.text(episodes=3)

    return {"/server": server_text, "/gateway": gateway_text}


@contextlib.contextmanager
def scrapable(pages: dict[str, Callable[[], str]]) -> Iterator[int]:
    """Serve each text, which grows with every scrape, on a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.end_headers()
            self.wfile.write(pages[self.path]().encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def prometheus(folder: Path, jobs: dict[str, tuple[int, str]]) -> Iterator[str]:
    """Run Prometheus until the block ends. It chooses its port itself, and logs it before it is ready."""
    settings = [
        {"job_name": job, "metrics_path": path, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for job, (port, path) in jobs.items()
    ]
    timing = {"scrape_interval": "200ms", "scrape_timeout": "200ms"}
    (folder / "prometheus.yml").write_text(json.dumps({"global": timing, "scrape_configs": settings}))
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += ["--web.listen-address=127.0.0.1:0", "--log.format=json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        address = ""
        try:
            for line in process.stdout:
                event = json.loads(line)
                if "Listening on" in event.get("msg", ""):
                    address = f"http://{event['address']}"
                if "ready to receive web requests" in event.get("msg", ""):
                    break
            yield address
        finally:
            process.terminate()
            process.stdout.read()


def answer(url: str, query: str) -> list[float]:
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=30) as response:
        return [float(sample["value"][1]) for sample in json.loads(response.read())["data"]["result"]]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed: apt-get install prometheus")
def test_prometheus_answers_every_query_of_the_dashboard(tmp_path: Path) -> None:
    from palestra.training.exposing import PrometheusWriter

    config: Any = None
    writer = PrometheusWriter(tmp_path / "run", config, port=0)
    writer({"step": 1, "reward": 0.5, "tokens_per_second": 100.0, "gradient_norm": 0.1})
    try:
        with scrapable(growing_pages()) as port:
            jobs = {"training": (writer.port, "/metrics"), "server": (port, "/server"), "gateway": (port, "/gateway")}
            with prometheus(tmp_path, jobs) as url:
                waiting, until = set(QUERIES), monotonic() + PATIENCE
                while waiting and monotonic() < until:
                    # A rate needs two scrapes, so that early answers are empty or not a number.
                    waiting = {query for query in waiting if not any(value >= 0 for value in answer(url, query))}
                assert {query: QUERIES[query] for query in waiting} == {}
                assert answer(url, "palestra_no_such_metric") == []
    finally:
        writer.close()
