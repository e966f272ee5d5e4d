r"""What serving costs and what it survives: sessions held, steps per second, CPU over a bare echo, faults, hostile peers.

    python benchmarks/serve.py            # some minutes
    python benchmarks/serve.py --quick    # under 50 s: fewer sessions, steps and faults

Everything talks to loopback. The server runs in a process of its own and is measured from outside; the load is in this one. The
bare echo is the ``websockets`` package's own server without compression, given the same bytes in the same run. The load checks
every answer: ``Tally`` names the task and counts the steps, so a lost, repeated or misrouted call is a wrong answer.
Left out: TLS, and a network that is not loopback.
"""

import argparse
import asyncio
import contextlib
import http.client
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from rows import Row, finish  # noqa: E402
from tests.serve import crowd, faulted, hostile, sequences  # noqa: E402
from tests.serve.tally import REFERENCE  # noqa: E402
from wsload import Echo, Player, Tallied, cpu_seconds, play, rss_megabytes  # noqa: E402

from palestra.serve.tokens import new_token  # noqa: E402

ECHO = """
import asyncio, sys
from websockets.asyncio.server import serve
async def echo(socket):
    async for message in socket:
        await socket.send(message)
async def main():
    async with serve(echo, "127.0.0.1", 0, compression=None, backlog=4096) as server:
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()
import logging; logging.disable(logging.CRITICAL)
asyncio.run(main())
"""


class Server(NamedTuple):
    """A server in a process of its own."""

    pid: int
    url: str
    token: str

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port


@contextlib.contextmanager
def running(command: list[str], token: str) -> Iterator[Server]:
    """``command``, which prints its URL somewhere in its first line."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = next(word for word in process.stdout.readline().split() if word.startswith("http://"))
        yield Server(process.pid, url, token)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def both() -> Iterator[tuple[Server, Server]]:
    """Ours and the bare echo."""
    token = new_token()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "token"
        file.touch(0o600)
        file.write_text(token)
        ours = [sys.executable, "-m", "palestra.cli", "serve", REFERENCE, "--token-file", str(file)]
        with running(ours, token) as server, running([sys.executable, "-c", ECHO], "") as echo:
            yield server, echo


def cpu_per_step(kind: type[Player], server: Server, sessions: int, steps: int) -> tuple[float, float]:
    """Microseconds of the server's CPU for a step, and steps per second."""
    measured: list[float] = []

    async def run() -> float:
        players, seconds = await play(kind, server, sessions, steps, lambda: measured.append(cpu_seconds(server.pid)))
        measured.append(cpu_seconds(server.pid))
        for player in players:
            player.transport.close()
        assert not sum(player.wrong + player.lost for player in players)
        return seconds

    seconds = asyncio.run(run())
    return (measured[1] - measured[0]) / (sessions * steps) * 1e6, sessions * steps / seconds


def cpu_rows(server: Server, echo: Server, quick: bool) -> list[Row]:
    rows, rates = [], []
    total, rounds = (8_000, 3) if quick else (40_000, 5)
    for sessions in (64, 512):
        ratios = []
        for _ in range(rounds):
            bare, _ = cpu_per_step(Echo, echo, sessions, total // sessions)
            ours, rate = cpu_per_step(Tallied, server, sessions, total // sessions)
            ratios.append(ours / bare)
            rates.append(rate)
            print(f"{sessions} sessions: echo {bare:.1f} µs, ours {ours:.1f} µs of CPU a step, {rate:.0f} steps/s")
        rows.append(Row(f"server CPU per step over a bare echo, {sessions} sessions", statistics.median(ratios), "<= 2.0"))
    return [*rows, Row("L2 steps per second, median round", statistics.median(rates), ">= 5000")]


def held_rows(server: Server, quick: bool) -> list[Row]:
    """L1: many sessions at once, every answer checked."""
    sessions, steps = (1_000 if quick else 10_000), 20

    async def run() -> list[Row]:
        players, seconds = await play(Tallied, server, sessions, steps)
        rss = rss_megabytes(server.pid)
        latencies = sorted(latency for player in players for latency in player.latencies)
        for player in players:
            player.transport.close()
        name = f"L1 {sessions} sessions × {steps} steps"
        print(f"{name}: {sessions * steps / seconds:.0f} steps/s")
        return [
            Row(f"{name}: lost", sum(player.lost for player in players), "<= 0"),
            Row(f"{name}: misrouted or wrong", sum(player.wrong for player in players), "<= 0"),
            Row(f"{name}: server RSS, MB", rss, "<= 300"),
            Row(f"{name}: p99 latency, ms, all in flight at once", latencies[int(len(latencies) * 0.99)] * 1e3, ""),
        ]

    return asyncio.run(run())


def http_rows(server: Server) -> list[Row]:
    """An answer over plain HTTP, on a connection that stays open."""
    connection = http.client.HTTPConnection(*server.address)
    taken = []
    for _ in range(50):
        began = perf_counter()
        connection.request("GET", "/v1/envs", headers={"Authorization": f"Bearer {server.token}"})
        assert connection.getresponse().read()
        taken.append((perf_counter() - began) * 1e3)
    connection.close()
    return [Row("HTTP answer on an open connection, ms, median of 50", statistics.median(taken), "<= 20")]


def fault_rows(quick: bool) -> list[Row]:
    """F1: the whole client through a proxy that breaks frames."""
    outcome = asyncio.run(faulted.run(faults=300 if quick else 10_000, players=30 if quick else 100))
    print(f"F1 faults by kind: {dict(outcome.counts)}; {outcome.steps} steps")
    return [
        Row("F1 faulted frames", sum(outcome.counts.values()), ">= 300" if quick else ">= 10000"),
        Row("F1 wrong rewards or observations", outcome.wrong, "<= 0"),
        Row("F1 double or lost steps", outcome.miscounted, "<= 0"),
        Row("F1 episodes lost", outcome.failed, "<= 0"),
    ]


def hostile_rows() -> list[Row]:
    """S5: a server that means harm."""
    messages, effects = asyncio.run(hostile.attack())
    return [Row("S5 malicious server messages", messages, ">= 100"), Row("S5 effects", effects, "<= 0")]


def crowd_rows(quick: bool) -> list[Row]:
    """Peers without a token, in numbers, against a server that may open 1,024 files."""
    handshakes, silent = (1_000, 500) if quick else (20_000, 2_000)
    seen = asyncio.run(crowd.attack(descriptors=1024, handshakes=handshakes, silent=silent, seconds=3 if quick else 30))
    name = f"{handshakes} hostile handshakes, {silent} silent connections, 1,024 descriptors"
    print(f"{name}: {seen.answers} answers to honest clients")
    return [
        Row(f"{name}: slowest honest answer, s", seen.worst, "<= 1"),
        Row(f"{name}: growth of the server, MB", seen.grown, "<= 10"),
        Row(f"{name}: log, kB", seen.logged / 1e3, "<= 100"),
    ]


def sequence_rows(quick: bool) -> list[Row]:
    """B2: random frames, good and bad, against the server."""
    count = 200 if quick else 5_000
    errors, lost = asyncio.run(sequences.run(count))
    return [
        Row(f"B2 server errors in {count} random sequences", errors, "<= 0"),
        Row("B2 sessions lost to a malformed message", lost, "<= 0"),
    ]


def schema_rows(wanted: int) -> list[Row]:
    """B2: schemathesis against the HTTP side, seed after seed; only in the long run, and only where it is installed."""
    calls = failures = seed = 0
    while calls < wanted:
        seed += 1
        found = asyncio.run(sequences.schemathesis(1000, seed))
        if found is None:
            print("schemathesis is not installed: its rows are left out")
            return []
        calls, failures = calls + found[0], failures + found[1]
        print(f"schemathesis, seed {seed}: {found[0]} calls, {found[1]} failures", flush=True)
    return [Row("B2 schemathesis calls", calls, f">= {wanted}"), Row("B2 schemathesis failures", failures, "<= 0")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer sessions, steps and faults: under 50 s")
    parser.add_argument("--schema", type=int, default=20_000, help="calls of schemathesis, half an hour's; 0 leaves them out")
    options = parser.parse_args()
    quick = options.quick
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with both() as (server, echo):
        rows = cpu_rows(server, echo, quick)
        rows += held_rows(server, quick) + http_rows(server)
    rows += fault_rows(quick) + hostile_rows() + crowd_rows(quick) + sequence_rows(quick)
    if options.schema and not quick:
        rows += schema_rows(options.schema)
    finish(rows)


if __name__ == "__main__":
    main()
