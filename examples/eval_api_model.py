# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra"]
# ///
"""Evaluate a model behind an OpenAI-compatible API on all easy games, with a limit of cost.

    OPENAI_API_KEY=… uv run --find-links dist examples/eval_api_model.py --model NAME --base-url https://HOST/v1

Set the prices of your model in ``evaluate``. ``--smoke`` starts a small server on this machine instead, which
answers every question with 5.
"""

import argparse
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import palestra
from palestra.core import Sampling
from palestra.policies.chat import ChatPolicy, Endpoint
from palestra.policies.limits import Budget


class AlwaysFive(BaseHTTPRequestHandler):
    """The chat API, as far as a smoke test needs it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "\\boxed{5}"}
        usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def stub() -> Iterator[str]:
    """The address of a server that runs inside the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), AlwaysFive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def evaluate(model: str, base_url: str, envs: str, n: int, dollars: float) -> None:
    """Print the score per environment, and what the calls cost."""
    endpoint = Endpoint(model, base_url, prompt_price=0.5, completion_price=1.5)  # dollars per million tokens
    policy = ChatPolicy(endpoint, Sampling(max_tokens=512), budget=Budget(dollars=dollars))
    report = palestra.evaluate(envs, policy, n=n)
    for env in report.envs:
        print(env.name, f"{env.score.mean:.2f} ({env.score.low:.2f} to {env.score.high:.2f})")
    print(policy.ledger)


def main() -> None:
    """Read the arguments and evaluate."""
    parser = argparse.ArgumentParser(description="Evaluate a model behind an OpenAI-compatible API.")
    parser.add_argument("--model", default="my-model")
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--envs", default="game:*-easy")
    parser.add_argument("-n", type=int, default=10, help="tasks per environment")
    parser.add_argument("--dollars", type=float, default=1.0, help="stop when the calls have cost this much")
    parser.add_argument("--smoke", action="store_true", help="use a server on this machine that always answers 5")
    arguments = parser.parse_args()
    if not arguments.smoke:
        evaluate(arguments.model, arguments.base_url, arguments.envs, arguments.n, arguments.dollars)
        return
    with stub() as url:
        evaluate("always-five", url, "game:GuessTheNumber-v0-easy", 5, 1.0)


if __name__ == "__main__":
    main()
