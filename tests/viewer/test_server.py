import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.viewer.serving import serving

from palestra.foundation.encoding import encode_json
from palestra.trajectory import Completion, StopReason, Task, Trajectory, Turn
from palestra.viewer import ViewerServer, open_runs


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The host and port of a viewer of a run with three episodes."""
    lines = [encode_json(Trajectory(Task("x:y", n), StopReason.TERMINATED, (Turn("o", Completion("a")),))) for n in range(3)]
    (tmp_path / "trajectories.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    for url in serving(tmp_path):
        yield urlsplit(url).netloc


def ask(server: str, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(server, timeout=300)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_it_listens_on_loopback_only(tmp_path: Path, server: str) -> None:
    with ViewerServer(open_runs([tmp_path])) as viewer:
        assert viewer.server_address[0] == "127.0.0.1"
        assert viewer.url == f"http://127.0.0.1:{viewer.server_port}/"


def test_page_catalog_and_episode(server: str) -> None:
    assert b"<title>palestra</title>" in ask(server, "/")[1]
    catalog = json.loads(ask(server, "/catalog.json")[1])
    assert catalog["runs"][0]["columns"]["task"]["values"] == ["seed 0", "seed 1", "seed 2"]
    assert json.loads(ask(server, "/runs/0/episodes/2.json")[1])["task"]["seed"] == 2
    assert json.loads(ask(server, "/runs/0/search.json?text=%22seed%22")[1]) == []
    assert json.loads(ask(server, "/runs/0/search.json?text=x:y")[1]) == [0, 1, 2]


def test_a_vocabulary_is_served_where_there_is_one(server: str, tmp_path: Path) -> None:
    assert ask(server, "/runs/0/vocabulary.json")[1] == b"null"
    (tmp_path / "vocabulary.json").write_text('["a", "b"]')
    assert json.loads(ask(server, "/runs/0/vocabulary.json")[1]) == ["a", "b"]


@pytest.mark.parametrize("target", ["http://[/x", "http://[::1/"])
def test_a_request_for_no_address_is_answered(server: str, target: str) -> None:
    host, _, port = server.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {server}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "path",
    ["/runs/0/episodes/3.json", "/runs/0/episodes/-1.json", "/runs/1/episodes/0.json", "/runs/-1/episodes/0.json",
     "/runs/0/episodes/x", "/../../etc/passwd", "/runs/0/../../x", "/static/page.css", "/%00"],
)  # fmt: skip
def test_nothing_else_is_there(server: str, path: str) -> None:
    ask(server, "/catalog.json")
    assert ask(server, path)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_only_reads(server: str, method: str) -> None:
    assert ask(server, "/", method)[0].status == 501
    response, body = ask(server, "/", "HEAD")
    assert (response.status, body) == (200, b"")


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "127.0.0.1"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
)
def test_other_sites_get_nothing(server: str, headers: dict[str, str]) -> None:
    response, body = ask(server, "/catalog.json", **headers)
    assert (response.status, body) == (403, b"")


def test_every_answer_carries_the_walls(server: str) -> None:
    for path in ("/", "/catalog.json", "/nothing"):
        headers = ask(server, path)[0].headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_a_report_is_served_in_a_sandbox_unless_it_is_a_link(server: str, tmp_path: Path) -> None:
    assert ask(server, "/runs/0/report.html")[0].status == 404
    (tmp_path / "report.html").write_text("<p>report</p>")
    response, body = ask(server, "/runs/0/report.html")
    assert body == b"<p>report</p>"
    assert response.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    (tmp_path / "report.html").rename(tmp_path / "secret")
    (tmp_path / "report.html").symlink_to(tmp_path / "secret")
    assert ask(server, "/runs/0/report.html")[0].status == 404
