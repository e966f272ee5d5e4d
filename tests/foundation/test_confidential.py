"""Secrets stay out of what is written: thirty planted, none found. What looks like a secret is masked, all else is kept."""

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import palestra
from palestra import Env, Step
from palestra.cli.app import app
from palestra.foundation.confidential import mask, mask_end, mask_start, mask_url, worker_variables
from palestra.trajectory import Failure, Phase

MODES = ("400", "401", "500", "wrong shape", "content", "headers in content")


class Echo(BaseHTTPRequestHandler):
    """An endpoint that tells what it was asked with."""

    mode = "400"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path.startswith("/v1/chat/completions?api-key=")
        asked = {"path": self.path, "headers": dict(self.headers.items())}
        told: Any = {"error": asked}
        if "content" in self.mode:
            said = str(asked["headers"]) if "headers" in self.mode else json.dumps(asked)
            told = {"choices": [{"message": {"content": said}, "finish_reason": "stop"}]}
        body = json.dumps(told).replace("/", "\\/").encode()  # as PHP writes JSON
        self.send_response(int(self.mode) if self.mode.isdecimal() else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("mode", MODES)
def test_no_planted_secret_is_written(mode: str, echo: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five secrets for each of six ways to echo them: a key, user and password, and two query values."""
    mark = f"{MODES.index(mode)}kGz/91+Qw"
    secrets = {name: f"planted-{name}-{mark}" for name in ("key", "user", "password", "query", "token")}
    quoted = {name: secret.replace("/", "%2F").replace("+", "%2B") for name, secret in secrets.items()}
    monkeypatch.setenv("OPENAI_API_KEY", secrets["key"])
    monkeypatch.setattr(Echo, "mode", mode)
    url = (
        f"http://{quoted['user']}:{quoted['password']}@127.0.0.1:{echo}/v1?api-key={quoted['query']}&harmless={quoted['token']}"
    )
    run = tmp_path / "run"
    done = CliRunner().invoke(app, ["eval", "some-model", "--base-url", url, "-e", "math:Sums", "-n", "2", "-o", str(run)])
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "trajectories.jsonl" and data for path, data in written.items()), done.output
    everything = {**written, Path("terminal"): f"{done.output}{done.exception}".encode()}
    basic = base64.b64encode(f"{secrets['user']}:{secrets['password']}".encode()).decode()
    for secret in (*secrets.values(), *quoted.values(), basic):
        for form in (secret, secret.replace("/", "\\/")):
            assert [str(path) for path, data in everything.items() if form.encode() in data] == []
    assert b"***" in b"".join(written.values())


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://user:pass@host/path", "https://***@host/path"),
        ("http://user:p@ss@host and me@example.org", "http://***@host and me@example.org"),
        ("postgresql+asyncpg://user:p@s:s@w@host:5/db", "postgresql+asyncpg://***@host:5/db"),
        (r'"http:\/\/user:pass@host\/path"', r'"http:\/\/***@host\/path"'),
        ("GET /v1?api-key=abc123&n=5", "GET /v1?api-key=***&n=5"),
        ("{'Authorization': 'Bearer abcdef.123'}", "{'Authorization': 'Bearer ***'}"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ('"x-api-key": "abcdef123"', '"x-api-key": "***"'),
        ("Incorrect API key: sk-proj-abcdefghijklmnop1234", "Incorrect API key: ***"),
        ("token eyJhbGciOiJI.eyJzdWIiOiIx.c2ln and more", "token *** and more"),
        ("password=hunter2hunter", "password=***"),
        ("passwd: hunter2hunter and more", "passwd: *** and more"),
        ("db_password='correct horse1'", "db_password='*** horse1'"),
        ('{"token":"aaaaaaaa1", "n": 5}', '{"token":"***", "n": 5}'),
        ('{"client_secret": "abcdefgh"}', '{"client_secret": "***"}'),
        ("export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPx", "export AWS_SECRET_ACCESS_KEY=***"),
        ("GH_PAT=0123abcdef and MYAPP_PIN=98231-77123", "GH_PAT=*** and MYAPP_PIN=***"),
        ("github_pat_11ABCDEFG0abcdefghijklmnop", "***"),
        ("at glpat-abcdefghijklmnopqrst!", "at ***!"),
        ("gsk_abcdefghijklmnopqrstuvwxyz", "***"),
        ("nvapi-abcdefghijklmnopqrstuvwxyz", "***"),
        ("pypi-AgEIcHlwaS5vcmcabcdefghijk", "***"),
        ("SG.abcdefghijklmnop.qrstuvwxyz0123456789", "***"),
        ("r8_abcdefghijklmnopqrstuvwxyz0123456789", "***"),
        ("dapiabcdef0123456789abcdef0123456789", "***"),
        ("rk_live_51HabcdefghijklmnopQRST", "***"),
        ("xoxe.xoxp-1-abcdefghijk", "***"),
        ("https://hooks.slack.com/services/T000/B000/XXXX", "https://hooks.slack.com/services/***"),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n/x+\n-----END RSA PRIVATE KEY-----\nb",
            "a\n-----BEGIN RSA PRIVATE KEY-----***\nb",
        ),
        ("-----BEGIN PRIVATE KEY-----\\nMIIEabc", "-----BEGIN PRIVATE KEY-----***"),
        ("Bearer: abcdefgh123", "Bearer: ***"),
        ("Proxy-Authorization: Basic dTpw", "Proxy-Authorization: Basic ***"),
        ("authorization: Token ab1", "authorization: Token ***"),
        ("Authorization: Signature9 abc4567", "Authorization: Signature9 ***"),
        ('Authorization: Digest username="u", response="66f"\nnext', "Authorization: Digest ***\nnext"),
        ("cookie: a=b; sid=abcdef123456\nnext", "cookie: ***\nnext"),
        ("Set-Cookie: sid=abc", "Set-Cookie: ***"),
        ("https://h/#access_token=abcdef123", "https://h/#access_token=***"),
        ("max_tokens=512, tokens: 4096, token: 128256", "max_tokens=512, tokens: 4096, token: 128256"),
        ('{"token": "because", "logprob": -1.25}', '{"token": "because", "logprob": -1.25}'),
        ("SyntaxError: Unexpected token: punctuation", "SyntaxError: Unexpected token: punctuation"),
        ("eos_token=</s> pad_token: <|endoftext|>", "eos_token=</s> pad_token: <|endoftext|>"),
        ("token = tokenizer.encode(text)", "token = tokenizer.encode(text)"),
        ("the password: it was right", "the password: it was right"),
        ("KEY=red, pass: 12 of 20, PIN=5", "KEY=red, pass: 12 of 20, PIN=5"),
        ("cookie: the jar holds 12345678 cookies", "cookie: the jar holds 12345678 cookies"),
        ("authorization: not granted", "authorization: not granted"),
        ("see #3 and sg.example.com", "see #3 and sg.example.com"),
        ("SEED=1234567 MAX_TOKEN=4096 PATH=/usr/bin1", "SEED=1234567 MAX_TOKEN=4096 PATH=/usr/bin1"),
        ("ValueError: 3 is not a key of the board", "ValueError: 3 is not a key of the board"),
        ("mail me@example.org about a basic thing", "mail me@example.org about a basic thing"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_an_address_keeps_its_host_and_the_names_of_its_query() -> None:
    assert mask_url("https://u:p@host:8000/v1?api-version=3&key=abc#x") == "https://***@host:8000/v1?api-version=***&key=***#x"
    assert mask_url("http://host/v1") == "http://host/v1"
    assert mask_url("no address") == "no address"


PLANTS: tuple[Callable[[str], str], ...] = (
    lambda secret: f"https://user:{secret}@host/path",
    lambda secret: f"{'a' * 80}://{secret}@host",
    lambda secret: f"http://u:{secret}@{secret}@host",
    lambda secret: f"GET /v1?n=1&my.api-key.of-mine={secret}&m=2",
    lambda secret: f"Authorization: Bearer {secret}",
    lambda secret: f"{{'X-Api-Key': '{secret}'}}",
    lambda secret: f"x-keykey-{'key-' * 10}token={secret}",
    lambda secret: f"sk-{secret}{secret}",
    lambda secret: f"eyJ{secret}.{secret}.{secret}",
)
"""Texts that hold a secret."""


@given(secret=st.text("QZ0189-_", min_size=8, max_size=60), plant=st.sampled_from(PLANTS), data=st.data())
def test_no_planted_secret_survives(secret: str, plant: Callable[[str], str], data: st.DataObject) -> None:
    secret = f"Q{secret}Z"  # the words around it hold no such letters
    words = st.lists(st.sampled_from(["key", "a.", "://", "@", "eyj", "x-", "?key=1", "bearer", "cookie :", "'", "…", "\n"]))
    text = f"{' '.join(data.draw(words))} {plant(secret)} {' '.join(data.draw(words))}"
    assert secret not in mask(text)
    filler = "some word " * 40
    padded, longest = f"{filler}{text} {filler}", data.draw(st.integers(180, 600))
    for part in (mask_start(padded, longest), mask_end(padded, longest)):  # wherever it is cut, no half of it is left
        assert secret[:8] not in part
        assert secret[-8:] not in part


UNITS: tuple[str, ...] = ("a.", "key", "?key", "?keykey", "x-", "x-key", "://", "://a", "@", "eyj-", "eyjaaaaaaaa.", "sk-")
UNITS += ("bearer ", "cookie ", "&", "api-key=")
NAMED_UNITS: tuple[str, ...] = (
    "password=",
    "password: ",
    "secret'",
    "token:1",
    "A_KEY",
    "KEY=",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN ",
)
NAMED_UNITS += ("-----END ", "authorization: a ", "proxy-", "cookie: a=", "SG.aaaaaaaaaa", "SG.", "gl", "#key=")


@pytest.mark.parametrize(
    ("unit", "before"),
    [*((unit, before) for unit in UNITS for before in ("", "?", "x-")), *((unit, "") for unit in NAMED_UNITS)],
)
def test_masking_takes_time_in_proportion_to_the_text(unit: str, before: str) -> None:
    def seconds(size: int) -> float:
        text = before + unit * (size // len(unit))
        began = time.process_time()
        mask(text)
        return time.process_time() - began

    small, large = (min(seconds(size) for _ in range(3)) for size in (4_000, 32_000))
    assert large < 24 * small + 0.001  # in proportion it is 8 times as much; with the square of the length 64 times


def test_a_failure_is_masked_and_keeps_the_start_of_a_long_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "planted-service-token")
    url = "https://me:hunter22@db.example/x?sig=abcdef12 "
    failure = Failure.of(RuntimeError("cannot log in with planted-service-token at " + url * 10**5), Phase.STEP)
    assert failure.message.startswith("cannot log in with *** at https://***@db.example")
    assert len(failure.message) <= 4000
    assert len(failure.detail) <= 4000
    assert not any(secret in str(failure) for secret in ("planted-service-token", "hunter22", "abcdef12"))


class Nosy(Env):
    """Shows the environment of its process."""

    blocking = True
    variables: ClassVar[tuple[str, ...]] = ("WANTED_KEY",)

    def reset(self, *, seed: int | None = None, task: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return json.dumps(dict(os.environ)), {}

    def step(self, action: str) -> Step:
        return Step("", 0.0, True, False, {})


class Modest(Nosy):
    variables = ()


@pytest.mark.slow
async def test_a_worker_gets_chosen_variables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {"OPENAI_API_KEY": "a", "HF_TOKEN": "b", "AWS_SECRET_ACCESS_KEY": "c", "PALESTRA_TOKEN": "d", "MY_SETTING": "e"}
    for name, value in {**planted, "WANTED_KEY": "wanted", "LC_ALL": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    assert not set(planted) & set(worker_variables())
    for kind, wanted in ((Nosy, "wanted"), (Modest, None)):  # the second may run in the worker of the first
        env = palestra.make_async(f"{__name__}:{kind.__name__}")
        shown = json.loads(str((await env.reset(seed=0))[0]))
        await env.close()
        assert shown.get("WANTED_KEY") == wanted
        assert shown["LC_ALL"] == "C.UTF-8"
        assert "PATH" in shown
        assert not set(planted) & set(shown)


HIDDEN_NAMES = ("DATABASE_PASS", "GH_PAT", "MYAPP_PIN", "NPM_CONFIG_USERPW", "SLACK_WEBHOOK", "PASS", "PALESTRA_TOKEN")
SHOWN_NAMES = ("MY_PATH", "PATTERN", "SPINNER", "COMPASS", "PGPASSFILE", "MYPWM", "PWD", "PALESTRA_TOKEN_HOST")


@pytest.mark.parametrize(
    ("name", "masked"), [*((name, True) for name in HIDDEN_NAMES), *((name, False) for name in SHOWN_NAMES)]
)
def test_variables_named_for_a_secret_are_masked(name: str, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/planted:value-1")
    assert mask("it said /planted:value-1") == ("it said ***" if masked else "it said /planted:value-1")
