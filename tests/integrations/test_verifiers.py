"""verifiers itself, with a scripted model behind its eval and train clients: the traces are those of the trajectories."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers")

import transformers
import verifiers.v1 as vf
from verifiers.v1.configs.client import EvalClientConfig, TrainClientConfig
from verifiers.v1.utils.loaders import load_environment

from palestra import Task, Trajectory
from palestra.integrations.verifiers import play_in
from palestra.models.tiny import build_tiny
from palestra.trajectory import text_of
from tests.integrations.abandoned import EPISODES, HELD, Silent, all_closed, cut_off
from tests.integrations.bridging import GAME, MAX_TOKENS, Row, Speller, assert_rough, compare, expected, rough_tasks, run

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("model") / "tiny", envs=GAME)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def url(folder: Path, tokenizer: Any) -> Iterator[str]:
    """A server with the scripted model: chat completions, and vLLM's tokens in, tokens out."""
    # verifiers encodes the replies again, and begins another branch if the sampled ids were others: see the page.
    speller = Speller(tokenizer, apart=0.0)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"object": "list", "data": [{"id": str(folder), "object": "model", "max_model_len": 2048}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(generated(body) if self.path.endswith("/generate") else completed(body))

        def answer(self, value: dict[str, Any]) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    def generated(body: dict[str, Any]) -> dict[str, Any]:
        ids, logprobs, stopped, _ = speller(body["token_ids"])
        content = [{"token": f"token_id:{id}", "logprob": value} for id, value in zip(ids, logprobs, strict=True)]
        choice = {"index": 0, "token_ids": list(ids), "finish_reason": "stop" if stopped else "length"}
        return {"request_id": "r", "choices": [{**choice, "logprobs": {"content": content}}]}

    def completed(body: dict[str, Any]) -> dict[str, Any]:
        prompt = tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, tokenize=True, return_dict=False)
        ids, _, stopped, _ = speller(prompt)
        message = {"role": "assistant", "content": tokenizer.decode(ids, skip_special_tokens=True)}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if stopped else "length"}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


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


def row_of(trace: Any) -> Row:
    """The only branch of a trace as a row."""
    (branch,) = trace.branches
    ids = [id for node in branch.nodes for id in node.token_ids]
    mask = [int(one) for node in branch.nodes for one in node.mask]
    known = iter([value for node in branch.nodes for value in node.logprobs])
    start = mask.index(1)
    return Row(ids[:start], ids[start:], mask[start:], [next(known) if one else 0.0 for one in mask[start:]])


def test_two_hundred_episodes_of_the_train_client_arrive_token_by_token(folder: Path, tokenizer: Any, url: str) -> None:
    client = TrainClientConfig(base_url=f"{url}/v1", api_key_var="NO_KEY", renderer_model_name=str(folder))
    context = vf.ModelContext(model=str(folder), client=client, sampling=vf.SamplingConfig(max_tokens=MAX_TOKENS))
    tasks = rough_tasks(200)
    played = expected(tasks, tokenizer, apart=0.0)
    assert_rough(played)
    for episode, one in zip(run(episodes(tasks, context)), played, strict=True):
        (trace,) = episode.traces
        assert episode.ok == trace.ok == (not one.stop.failed), episode.errors
        compare([row_of(trace)], [one])
        if one.stop.failed:
            assert "palestra" not in trace.rewards, "a failed episode has a reward"
            assert "broken on purpose" in trace.errors[-1].message
        else:
            assert trace.rewards["palestra"].value == pytest.approx(one.reward)
            assert trace.metrics.get("success") == (None if one.success is None else float(one.success))


def same_text(messages: Sequence[Any], one: Trajectory) -> None:
    said = [(message["role"], message["content"]) for message in messages]
    for number, turn in enumerate(one.turns):
        assert said[2 * number] == ("user", text_of(turn.observation))
        assert said[2 * number + 1] == ("assistant", turn.completion.text)
    assert len(said) == 2 * len(one.turns)


def test_the_eval_client_carries_the_same_texts_and_rewards(folder: Path, tokenizer: Any, url: str) -> None:
    client = EvalClientConfig(base_url=f"{url}/v1", api_key_var="NO_KEY")
    context = vf.ModelContext(model=str(folder), client=client, sampling=vf.SamplingConfig(max_tokens=MAX_TOKENS))
    tasks = rough_tasks(40)
    for episode, one in zip(run(episodes(tasks, context)), expected(tasks, tokenizer, apart=0.0), strict=True):
        (trace,) = episode.traces
        if one.stop.failed:
            assert not episode.ok
            continue
        same_text([message.model_dump() for message in trace.branches[0].messages], one)
        assert trace.reward == pytest.approx(one.reward)


@pytest.mark.parametrize("client", ["eval", "train"])
def test_vf_eval_plays_eight_episodes(client: str, folder: Path, tokenizer: Any, url: str, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "vf-eval"), "palestra-verifiers", "--env.taskset.env", GAME]
    command += ["-n", "8", "-r", "1", "-m", str(folder), "--client.type", client, "--client.base-url", f"{url}/v1"]
    command += ["--sampling.max-tokens", str(MAX_TOKENS), "--no-push", "--output-dir", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, env={**os.environ, "NO_KEY": "x"})
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "out").rglob("traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(episodes) == 8
    tasks = [Task(**episode["task"]["data"]["palestra"]) for episode in episodes]
    for episode, one in zip(episodes, expected(tasks, tokenizer, apart=0.0), strict=True):
        (trace,) = episode["traces"]
        assert sum(reward["score"] for reward in trace["rewards"].values()) == pytest.approx(one.reward)
        if client == "eval":
            same_text([node["message"] for node in trace["nodes"]], one)
        else:
            (segment,) = one.segments
            assert [id for node in trace["nodes"] for id in node["token_ids"]] == segment.ids.tolist()
            assert [flag for node in trace["nodes"] for flag in node["mask"]] == segment.mask.tolist()
            # The file has four decimals.
            logprobs = [value for node in trace["nodes"] for value in node["logprobs"]]
            assert logprobs == pytest.approx(segment.logprobs.tolist(), abs=1e-4)


@pytest.mark.parametrize("how", ["error", "cancelled"])
def test_a_thousand_abandoned_episodes_leave_nothing(how: str) -> None:
    silent = Silent()

    class Gone:
        async def turn(self, message: str) -> Any:
            if how == "cancelled":
                await silent()
            raise ConnectionError("the program has gone away")

    async def abandon() -> None:
        playing = asyncio.gather(*(play_in(Gone(), Task(HELD, seed)) for seed in range(EPISODES)), return_exceptions=True)
        if how == "cancelled":
            await cut_off(playing, silent)
        else:
            assert {type(error) for error in await playing} == {ConnectionError}

    with all_closed():
        run(abandon())
