"""verifiers itself, with a scripted model behind its eval and train clients: the traces are those of the trajectories."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers")

import renderers.client
import verifiers.v1 as vf
from verifiers.v1.configs.client import EvalClientConfig, TrainClientConfig
from verifiers.v1.utils.loaders import load_environment

from palestra import StopReason, Task, Trajectory
from palestra.bridges.verifiers import play_in
from palestra.inference.engines.calls import Sampled
from palestra.trajectory import text_of
from tests.bridges.abandoned import HELD, Silent, all_closed, cut_off
from tests.bridges.bridging import (
    CONTEXT,
    GAME,
    MAX_TOKENS,
    NARROW,
    WHOLE,
    Afresh,
    Row,
    Speller,
    assert_rough,
    compare,
    expected,
    rough_tasks,
    run,
)
from tests.bridges.contract import (
    FRAMEWORK,
    Bridge,
    Received,
    test_a_thousand_abandoned_episodes_leave_nothing,  # noqa: F401
    test_every_segment_arrives_token_by_token,  # noqa: F401
    test_two_hundred_episodes_arrive_token_by_token,  # noqa: F401
)

pytestmark = FRAMEWORK


@pytest.fixture(autouse=True)
def fresh_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The renderers of verifiers have one lock per process, and a lock belongs to one event loop: each test has its own."""
    monkeypatch.setattr(renderers.client, "_max_prompt_len_lock", asyncio.Lock())


@contextmanager
def serving(folder: Path, tokenizer: Any, *, apart: float = 0.0, length: int = CONTEXT) -> Iterator[str]:
    """A server with the scripted model: chat completions, and vLLM's tokens in, tokens out. It has a context of ``length``."""
    speller = Speller(tokenizer, apart=apart)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"object": "list", "data": [{"id": str(folder), "object": "model", "max_model_len": length}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            by_ids = self.path.endswith("/generate")
            prompt = body["token_ids"] if by_ids else rendered(body["messages"])
            if len(prompt) >= length:  # vLLM's words, with one token of room at least
                message = f"This model's maximum context length is {length} tokens. However, your request has {len(prompt)}."
                self.answer({"error": {"message": message, "type": "BadRequestError", "code": 400}}, 400)
            else:
                sampled = speller(prompt, min(MAX_TOKENS, length - len(prompt)))
                self.answer(generated(sampled) if by_ids else completed(sampled, len(prompt)))

        def answer(self, value: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    def rendered(messages: list[dict[str, Any]]) -> list[int]:
        ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        return ids

    def generated(sampled: Sampled) -> dict[str, Any]:
        ids, logprobs, stopped, _ = sampled
        content = [{"token": f"token_id:{id}", "logprob": value} for id, value in zip(ids, logprobs, strict=True)]
        choice = {"index": 0, "token_ids": list(ids), "finish_reason": "stop" if stopped else "length"}
        return {"request_id": "r", "choices": [{**choice, "logprobs": {"content": content}}]}

    def completed(sampled: Sampled, before: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": tokenizer.decode(sampled.ids, skip_special_tokens=True)}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if sampled.stopped else "length"}
        usage = {"prompt_tokens": before, "completion_tokens": len(sampled.ids), "total_tokens": before + len(sampled.ids)}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def context_of(folder: Path, url: str, client: str) -> Any:
    kind: Any = {"train": partial(TrainClientConfig, renderer_model_name=str(folder)), "eval": EvalClientConfig}[client]
    sampling = vf.SamplingConfig(max_tokens=MAX_TOKENS)
    return vf.ModelContext(model=str(folder), client=kind(base_url=f"{url}/v1", api_key_var="NO_KEY"), sampling=sampling)


def env_config(**taskset: Any) -> Any:
    from verifiers.v1.utils.loaders import environment_class

    plugin = environment_class("palestra-verifiers")
    config = plugin.__orig_bases__[0].__args__[0]
    return config(taskset={"id": "palestra-verifiers", **taskset})


async def episodes(tasks: Sequence[Task], context: Any) -> list[Any]:
    """Play ``tasks`` with verifiers' own environment loop, all but the choice of tasks."""
    import msgspec

    env = load_environment(env_config())
    (template,) = env.taskset.take(1)
    gate = asyncio.Semaphore(8)
    async with env.serving():
        slots = [env.slots(template.with_data(idx=at, palestra=msgspec.to_builtins(task)))[0] for at, task in enumerate(tasks)]
        return await asyncio.gather(*(env.run_slot(slot, context, gate) for slot in slots))


def rows_of(trace: Any) -> list[Row]:
    """The branches of a trace as rows, every sampled token in one of them.

    verifiers keeps each message once: a reply before a fork belongs to every branch that goes through it. It counts for the
    first one here, as in a trajectory.
    """
    rows: list[Row] = []
    seen: set[int] = set()
    for branch in trace.branches:
        ids, mask, logprobs = [], [], []
        for node in branch.nodes:
            known = iter(node.logprobs)
            own = [int(one and id(node) not in seen) for one in node.mask]
            ids += node.token_ids
            mask += own
            logprobs += [next(known) if one else 0.0 for one in own]
        seen.update(map(id, branch.nodes))
        start = mask.index(1)
        rows.append(Row(ids[:start], ids[start:], mask[start:], logprobs[start:]))
    return rows


class Verifiers(Bridge):
    """The train client. Replies that are spelled in other tokens than those of their text make branches of a trace."""

    renderer = Afresh

    def __init__(self, tokenizer: Any, folder: Path) -> None:
        super().__init__(tokenizer)
        self.folder = folder

    def expected(self, tasks: Sequence[Task], renderer: Any = None) -> list[Trajectory]:
        self.apart = 1 / 3 if renderer is not None else 0.0
        return super().expected(tasks, renderer)

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        with serving(self.folder, self.tokenizer, apart=self.apart) as url:
            played = run(episodes(tasks, context_of(self.folder, url, "train")))
        self.traces = [trace for episode in played for trace in episode.traces]
        assert [episode.ok for episode in played] == [trace.ok for trace in self.traces]
        return [Received(rows_of(trace), trace.rewards["palestra"].value) if trace.ok else None for trace in self.traces]

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        for trace, one in zip(self.traces, played, strict=True):
            if one.stop.failed:
                assert "palestra" not in trace.rewards, "a failed episode has a reward"
                assert "broken on purpose" in trace.errors[-1].message
            else:
                assert trace.metrics.get("success") == (None if one.success is None else float(one.success))

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        class Gone:
            async def turn(self, message: str) -> Any:
                await silent()

        playing = asyncio.gather(*(play_in(Gone(), task) for task in tasks), return_exceptions=True)
        await cut_off(playing, silent)


@pytest.fixture
def bridge(tokenizer: Any, folder: Path) -> Verifiers:
    return Verifiers(tokenizer, folder)


@pytest.mark.parametrize("client", ["eval", "train"])
def test_an_episode_whose_context_is_full_is_truncated_and_keeps_its_rewards(client: str, folder: Path, tokenizer: Any) -> None:
    tasks = rough_tasks(60, WHOLE)
    played = expected(tasks, tokenizer, context_length=NARROW, apart=0.0)
    assert_rough(played, failures=False, overflow=True)
    with serving(folder, tokenizer, length=NARROW) as url:
        found = run(episodes(tasks, context_of(folder, url, client)))
    for episode, one in zip(found, played, strict=True):
        (trace,) = episode.traces
        assert trace.ok, trace.errors
        assert trace.is_truncated == (one.stop in (StopReason.CONTEXT_OVERFLOW, StopReason.LENGTH_CUT))
        assert trace.rewards["palestra"].value == pytest.approx(one.reward)
        if client == "train":
            compare(rows_of(trace), one)


@pytest.mark.parametrize("client", ["eval", "train"])
def test_vf_eval_plays_eight_episodes(client: str, folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    with serving(folder, tokenizer) as url:
        vf_eval(client, folder, url, tmp_path)
    (file,) = (tmp_path / "out").rglob("traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(episodes) == 8
    tasks = [Task(**episode["task"]["data"]["palestra"]) for episode in episodes]
    for episode, one in zip(episodes, expected(tasks, tokenizer, apart=0.0), strict=True):
        (trace,) = episode["traces"]
        assert sum(reward["score"] for reward in trace["rewards"].values()) == pytest.approx(one.reward)
        if client == "eval":
            said = [(node["message"]["role"], node["message"]["content"]) for node in trace["nodes"]]
            turns = [(("user", text_of(turn.observation)), ("assistant", turn.completion.text)) for turn in one.turns]
            assert said == [message for turn in turns for message in turn]
        else:
            (segment,) = one.segments
            assert [id for node in trace["nodes"] for id in node["token_ids"]] == segment.ids.tolist()
            assert [flag for node in trace["nodes"] for flag in node["mask"]] == segment.mask.tolist()
            # The file has four decimals.
            logprobs = [value for node in trace["nodes"] for value in node["logprobs"]]
            assert logprobs == pytest.approx(segment.logprobs.tolist(), abs=1e-4)


def vf_eval(client: str, folder: Path, url: str, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "vf-eval"), "palestra-verifiers", "--env.taskset.env", GAME]
    command += ["-n", "8", "-r", "1", "-m", str(folder), "--client.type", client, "--client.base-url", f"{url}/v1"]
    command += ["--sampling.max-tokens", str(MAX_TOKENS), "--no-push", "--output-dir", str(tmp_path / "out")]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=600, cwd=tmp_path, env={**os.environ, "NO_KEY": "x"}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_episode_whose_program_goes_away_is_an_error() -> None:
    class Gone:
        async def turn(self, message: str) -> Any:
            raise ConnectionError("the program has gone away")

    with all_closed(1), pytest.raises(ConnectionError):
        run(play_in(Gone(), Task(HELD, 0)))
