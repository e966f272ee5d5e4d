# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[render]", "verifiers==0.4.0"]
# ///
"""Evaluate a model on a game of Palestra with verifiers, the environment library that prime-rl uses.

The model stands behind any OpenAI-compatible server. Further options go to ``vf-eval``::

    uv run --find-links dist examples/eval_with_verifiers.py -m MODEL --client.base-url http://localhost:8000/v1

``--smoke`` starts a server whose model guesses by binary search, and evaluates it::

    uv run --find-links dist examples/eval_with_verifiers.py --smoke

prime-rl trains on the same id: put ``palestra-verifiers`` where its configuration names a taskset.
"""

import json
import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from verifiers.v1.cli.eval.main import main as vf_eval

ENV = "game:GuessTheNumber-v0-easy"


class BinarySearch(BaseHTTPRequestHandler):
    """A chat server whose model plays by binary search."""

    def do_POST(self) -> None:
        """Answer a chat completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        low, high = 1, 10
        for message in body["messages"]:
            for way, number in re.findall(r"the number is (higher|lower) than (\d+)", str(message["content"])):
                low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
        reply = {"role": "assistant", "content": f"\\boxed{{{(low + high) // 2}}}"}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
        answer["choices"] = [{"index": 0, "message": reply, "finish_reason": "stop"}]
        answer["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def evaluate(options: list[str]) -> None:
    """Run ``vf-eval`` on the game."""
    vf_eval(["palestra-verifiers", "--env.taskset.env", ENV, "--no-push", *options])


def smoke() -> None:
    """Evaluate the binary search on four tasks."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BinarySearch)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        evaluate(["-n", "4", "-m", "search", "--client.base-url", url, "--output-dir", folder])
        (file,) = Path(folder).rglob("traces.jsonl")
        traces = [trace for line in file.read_text().splitlines() for trace in json.loads(line)["traces"]]
    print([trace["rewards"]["palestra"]["score"] for trace in traces])
    assert all(trace["rewards"]["palestra"]["score"] == 1.0 for trace in traces), "binary search did not find a number"
    server.shutdown()


if __name__ == "__main__":
    smoke() if sys.argv[1:] == ["--smoke"] else evaluate(sys.argv[1:])
