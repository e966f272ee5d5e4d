r"""What the token path costs and how exact it is. Every ratio is taken between two things of the same run.

    python benchmarks/tokens.py                        # all rows that need no server: about ten minutes on two cores
    python benchmarks/tokens.py logprobs reuse         # some of them
    python benchmarks/tokens.py faults --server URL    # 1,000 chat episodes against a real OpenAI-compatible server

logprobs   every log-prob of 64 multi-turn episodes against a separate pass over the whole segment, fp32 and bf16
generate   the hf engine against bare ``model.generate``, batch 32
reuse      8-turn episodes with keys and values kept from turn to turn, against computing them anew every turn
crowd      4,096 concurrent chat episodes against a stub server, against a bare aiohttp loop that makes the same calls
length     rendering and recording: the cost of turn 128 of an episode against that of turn 8
faults     a chat policy behind a fault injector (429 bursts, 500s, cut connections, 30 s stalls)

Left out: GPUs, and servers of other people. The vLLM rows are the test group ``vllm``.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fault_proxy import FaultProxy
from rows import Row, finish, interleaved

from palestra.core import Conversation, EngineSession, Sampling
from palestra.foundation.encoding import Ints, ints
from palestra.inference.models import fetch_smollm2
from palestra.inference.rendering import renderer_for
from palestra.policies.chat import ChatPolicy, Endpoint
from palestra.policies.limits import Budget
from palestra.policies.sampled import SampledPolicy
from palestra.policies.shots import OracleShots
from palestra.registry import make_async
from palestra.rollouts import rollout
from palestra.testing.scripted import ScriptedEngine
from palestra.trajectory import Finish, Message, StopReason, Task, Trajectory
from palestra.trajectory.segments import SegmentRecorder

GAME = "game:GuessTheNumber-v0-easy"


def _model(dtype: str) -> Any:
    import torch
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(fetch_smollm2(), dtype=getattr(torch, dtype)).eval()


def _tokenizer() -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(fetch_smollm2())


async def _play(policy: Any, n: int, concurrency: int) -> list[Trajectory]:
    options: Any = {"n": n, "concurrency": concurrency, "seed": 0, "deadline": 3600.0}
    return [trajectory async for trajectory in rollout(GAME, policy, **options)]


# --------------------------------------------------------------------------------------------------------------- logprobs


def logprobs() -> list[Row]:
    rows = []
    # The last computes in float32 with weights rounded to bfloat16: what a bf16 model costs when only its arithmetic is exact.
    for dtype, limit in (("float32", "<= 1e-4"), ("bfloat16", "<= 3e-2"), ("bfloat16 weights, float32 arithmetic", "<= 3e-2")):
        differences = _differences(_model(dtype.split()[0]).float() if "arithmetic" in dtype else _model(dtype))
        rows.append(Row(f"log-probs, {dtype}: worst of {len(differences)} sampled tokens", float(differences.max()), limit))
        rows.append(Row(f"log-probs, {dtype}: 99th percentile", float(np.quantile(differences, 0.99)), ""))
        rows.append(Row(f"log-probs, {dtype}: mean", float(differences.mean()), ""))
        print(*rows[-3:], sep="\n", flush=True)
    return rows


def _differences(model: Any) -> Any:
    import torch

    from palestra.inference.engines.hf import HFEngine

    engine = HFEngine(model)
    policy = SampledPolicy(renderer_for(_tokenizer()), engine, Sampling(16), shots=OracleShots(1))
    played = asyncio.run(_play(policy, 64, 32))
    assert sum(len(trajectory.turns) for trajectory in played) > 64
    worst = []
    for trajectory in played:
        for segment in trajectory.segments:
            with torch.inference_mode():
                logits = model(torch.tensor(segment.ids[None].astype(np.int64))).logits[0].float()
            again = (
                torch.log_softmax(logits, -1)[:-1].gather(1, torch.tensor(segment.ids[1:, None].astype(np.int64)))[:, 0].numpy()
            )
            worst.append(np.abs(again[segment.mask[1:]] - segment.logprobs))
    return np.concatenate(worst)


# --------------------------------------------------------------------------------------------------------------- generate


def generate(rounds: int = 3, batch: int = 32, prompt: int = 64, new: int = 48) -> list[Row]:
    import torch

    from palestra.inference.engines.hf import HFEngine

    model = _model("float32")
    prompts = [ints(np.random.default_rng(number).integers(100, 40_000, prompt)) for number in range(batch)]
    engine = HFEngine(model, batch=batch)

    def bare() -> float:
        ids = torch.tensor(np.stack(prompts).astype(np.int64))
        options = {"do_sample": True, "top_k": 0, "top_p": 1.0, "max_new_tokens": new, "min_new_tokens": new, "pad_token_id": 0}
        began = time.perf_counter()
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        return time.perf_counter() - began

    async def sample() -> float:
        began = time.perf_counter()
        answers = await asyncio.gather(*(engine.generate(one, Sampling(new), EngineSession()) for one in prompts))
        assert all(len(answer.tokens.ids) == new for answer in answers)
        engine._arena.forget()
        return time.perf_counter() - began

    bare()
    asyncio.run(sample())
    ours, theirs, ratio = interleaved(lambda: asyncio.run(sample()), bare, rounds)
    return [
        Row(f"hf engine over model.generate, batch {batch}, tokens/s", ratio, ">= 0.9"),
        Row("    hf engine, tokens/s", batch * new / ours, ""),
        Row("    model.generate, tokens/s", batch * new / theirs, ""),
    ]


# ------------------------------------------------------------------------------------------------------------------ reuse


def reuse(rounds: int = 2, episodes: int = 16, turns: int = 8) -> list[Row]:
    from palestra.inference.engines import hf

    engine = hf.HFEngine(_model("float32"), batch=episodes)
    random = np.random.default_rng(0)
    observed = [[ints(random.integers(100, 40_000, 48)) for _ in range(turns)] for _ in range(episodes)]

    async def episode(script: list[Ints], keep: bool) -> None:
        session, context = EngineSession(), ints([])
        for observation in script:
            context = ints(np.concatenate([context, observation]))
            session = session if keep else EngineSession()
            tokens, _ = await engine.generate(context, Sampling(8), session)
            context = ints(np.concatenate([context, tokens.ids]))

    async def play(keep: bool) -> float:
        hf._WORTH_COPYING = 16 if keep else 1 << 30  # nor may a row be copied from an earlier turn's
        began = time.perf_counter()
        await asyncio.gather(*(episode(script, keep) for script in observed))
        engine._arena.forget()
        return time.perf_counter() - began

    asyncio.run(play(True))
    kept, anew, ratio = interleaved(lambda: asyncio.run(play(True)), lambda: asyncio.run(play(False)), rounds)
    return [
        Row(f"keys kept over {turns} turns, episodes/s over prefilling every turn", ratio, ">= 1.5"),
        Row("    kept, episodes/s", episodes / kept, ""),
        Row("    anew, episodes/s", episodes / anew, ""),
    ]


# ------------------------------------------------------------------------------------------------------------------ crowd


def _serve_stub(connection: Any) -> None:
    from aiohttp import web

    body = (
        b'{"choices":[{"message":{"role":"assistant","content":"\\\\boxed{5}"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":50,"completion_tokens":5}}'
    )

    async def chat(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(0.2)
        return web.Response(body=body, content_type="application/json")

    async def serve() -> None:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", chat)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=8192)
        await site.start()
        server: Any = site._server
        connection.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(serve())


def crowd(rounds: int = 3, episodes: int = 4096) -> list[Row]:
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve_stub, args=(there,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1"
    try:
        ours, bare, ratio = interleaved(lambda: _bare_loop(url, episodes), lambda: _crowded(url, episodes), rounds)
    finally:
        server.terminate()
    return [
        Row(f"{episodes} concurrent episodes: CPU a turn over a bare aiohttp loop", ratio, "<= 2.5"),
        Row("    bare loop, microseconds of CPU a turn", 1e6 * ours, ""),
        Row("    episodes, microseconds of CPU a turn", 1e6 * bare, ""),
    ]


def _bare_loop(url: str, episodes: int) -> float:
    """The same calls with nothing around them: seconds of CPU a call."""
    import json

    import aiohttp

    first = [{"role": "user", "content": "You are playing Guess The Number. " * 8}]

    async def talk(session: aiohttp.ClientSession) -> int:
        messages, calls = list(first), 0
        for _ in range(3):
            body = {"model": "stub", "max_tokens": 512, "temperature": 1.0, "messages": messages, "seed": 1}
            async with session.post(f"{url}/chat/completions", json=body) as answer:
                reply = json.loads(await answer.read())
            calls += 1
            messages += [reply["choices"][0]["message"], {"role": "user", "content": "At turn 1, you guessed 5, go on."}]
        return calls

    async def run() -> float:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            began = time.process_time()
            calls = sum(await asyncio.gather(*(talk(session) for _ in range(episodes))))
            return (time.process_time() - began) / calls

    return asyncio.run(run())


def _crowded(url: str, episodes: int) -> float:
    """Whole episodes through the chat policy: seconds of CPU a turn."""

    async def run() -> float:
        policy = ChatPolicy(Endpoint("stub", url))
        began = time.process_time()
        played = await _play(policy, episodes, episodes)
        spent = time.process_time() - began
        await policy.close()
        assert len(played) == episodes
        assert not any(trajectory.failures for trajectory in played)
        return spent / sum(len(trajectory.turns) for trajectory in played)

    return asyncio.run(run())


# ----------------------------------------------------------------------------------------------------------------- length


def length(turns: int = 128, episodes: int = 40) -> list[Row]:
    renderer = renderer_for(_tokenizer())
    stop = renderer.stop_ids[0]
    sampled = [*np.random.default_rng(0).integers(100, 40_000, 100).tolist(), stop]
    observation = "At turn 3, you guessed 12, and the number is higher than 12. " * 16
    costs: list[list[float]] = []
    for _ in range(episodes):
        costs.append(asyncio.run(_long_episode(renderer, sampled, observation, turns)))
    at = [statistics.median(line[turn] for line in costs) for turn in range(turns)]
    early, late = statistics.median(at[5:11]), statistics.median(at[-6:])
    return [
        Row(f"rendering and recording: turn {turns} over turn 8", late / early, "<= 1.5"),
        Row("    turn 8, microseconds", 1e6 * early, ""),
        Row(f"    turn {turns}, microseconds", 1e6 * late, ""),
    ]


async def _long_episode(renderer: Any, sampled: list[int], observation: str, turns: int) -> list[float]:
    policy = SampledPolicy(renderer, ScriptedEngine(lambda prompt, sampling: sampled), Sampling(512))
    conversation = Conversation(Task(GAME, 0), make_async(GAME))
    recorder, costs = SegmentRecorder(), []
    for turn in range(turns):
        conversation.messages.append(Message("user", observation))
        began = time.process_time()
        completion = recorder.take(await policy.act(conversation), turn)
        costs.append(time.process_time() - began)
        conversation.messages.append(Message("assistant", completion.text))
    (segment,) = recorder.segments()
    assert len(segment.spans) == turns
    return costs


# ----------------------------------------------------------------------------------------------------------------- faults


def faults(server: str, episodes: int = 1000) -> list[Row]:
    async def run() -> list[Row]:
        async with FaultProxy(server) as proxy:
            # A legal move each time, so that even a tiny untrained model plays several turns.
            legal = {"structured_outputs": {"regex": r"\\boxed\{[1-9]\}"}}
            options: Any = {"timeout": 28.0, "attempts": 60, "longest_wait": 5.0, "concurrency": 64, "extra": legal}
            endpoint = Endpoint(proxy.model, f"{proxy.url}/v1", **options)
            policy = ChatPolicy(endpoint, Sampling(16))
            began = time.perf_counter()
            played = await _play(policy, episodes, 64)
            seconds = time.perf_counter() - began
            spent = policy.ledger.prompt_tokens + policy.ledger.completion_tokens
            await policy.close()
            print(f"{seconds:.0f} s, faults {dict(proxy.kinds)}, ledger {policy.ledger}")
            budgeted, over, flight = await _over_budget(endpoint, spent // (10 * len(played)) * 100)
        turns = sum(len(trajectory.turns) for trajectory in played)
        return [
            Row("episodes accounted", len(played), f">= {episodes}"),
            Row("episodes failed", sum(trajectory.stop.failed for trajectory in played), "<= 0"),
            Row("answers delivered and not one turn (lost or duplicated)", abs(policy.ledger.calls - turns), "<= 0"),
            Row("faults injected", sum(count for kind, count in proxy.kinds.items() if kind != "passed"), ""),
            Row("over budget, in largest calls, against calls in flight", over / flight, "<= 1"),
            Row("    episodes stopped by the budget", budgeted, ">= 1"),
        ]

    return asyncio.run(run())


async def _over_budget(endpoint: Endpoint, tokens: int) -> tuple[int, float, int]:
    """Episodes stopped by a budget, by how many of the largest calls it was exceeded, and how many could be in flight."""
    policy = ChatPolicy(endpoint, Sampling(16), budget=Budget(tokens=tokens))
    played = await _play(policy, 200, 64)
    await policy.close()
    costs = [
        turn.completion.usage.prompt_tokens + turn.completion.usage.completion_tokens
        for trajectory in played
        for turn in trajectory.turns
        if turn.completion.usage is not None
    ]
    over = policy.ledger.prompt_tokens + policy.ledger.completion_tokens - tokens
    stopped = sum(trajectory.stop is StopReason.BUDGET for trajectory in played)
    assert all(t.turns[-1].completion.finish is Finish.BUDGET for t in played if t.stop is StopReason.BUDGET)
    return stopped, max(over, 0) / max(costs), endpoint.concurrency


ROWS: dict[str, Callable[[], list[Row]]] = {
    "length": length,
    "crowd": crowd,
    "generate": generate,
    "reuse": reuse,
    "logprobs": logprobs,
}

QUICK = ("length", "crowd")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, "faults", []])
    parser.add_argument("--quick", action="store_true", help="the rows that need no model, in under 50 s")
    parser.add_argument("--server", default="", help="base URL of an OpenAI-compatible server, for faults")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for name in options.rows or (QUICK if options.quick else ROWS):
        rows += faults(options.server) if name == "faults" else ROWS[name]()
    finish(rows)


if __name__ == "__main__":
    main()
