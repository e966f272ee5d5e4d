"""Agent Lightning's runner, tracer and store, with a scripted model behind HTTP: its triplets are the turns of trajectories."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agentlightning")

import agentlightning as agl
from aiohttp import web

from palestra import Task, Trajectory
from palestra.errors import InfrastructureError, UsageError
from palestra.integrations.agent_lightning import lit_agent, task_rows
from tests.answering import answering
from tests.integrations.abandoned import EPISODES, HELD, Silent, all_closed, cut_off
from tests.integrations.bridging import GAME, MAX_TOKENS, NARROW, Speller, assert_rough, expected, rough_tasks, run

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AgentOps writes a log into the working folder."""
    monkeypatch.chdir(tmp_path)


@asynccontextmanager
async def serving(tokenizer: Any, length: int = NARROW) -> AsyncIterator[Any]:
    """The resource ``LLM`` of a server with the scripted model. It returns token ids and log-probs, as vLLM does."""
    speller, calls = Speller(tokenizer, apart=0.0), 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        body = await request.json()
        assert body["return_token_ids"]
        assert body["logprobs"]
        prompt = tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, tokenize=True, return_dict=False)
        if len(prompt) >= length:
            return web.json_response({"error": {"message": f"This model's maximum context length is {length}."}}, status=400)
        ids, logprobs, stopped, _ = speller(prompt, min(body["max_tokens"], length - len(prompt)))
        content = [{"token": f"token_id:{id}", "logprob": value} for id, value in zip(ids, logprobs, strict=True)]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": tokenizer.decode(ids, skip_special_tokens=True)},
            "finish_reason": "stop" if stopped else "length",
            "token_ids": list(ids),
            "logprobs": {"content": content},
        }
        names = {"id": f"c{calls}", "object": "chat.completion", "created": 1, "model": "m"}  # the tracer needs different ids
        return web.json_response({**names, "choices": [choice], "prompt_token_ids": list(prompt)})

    async with answering(answer) as url:
        yield agl.LLM(endpoint=f"{url}/v1", model="m", api_key="none")


async def played_by(agent: Any, tasks: Sequence[Task], tokenizer: Any) -> list[tuple[str, list[Any]]]:
    """The status and the triplets of each task that Agent Lightning's runner plays with ``agent``."""
    store, found = agl.InMemoryLightningStore(), []
    runner = agl.LitAgentRunner(agl.AgentOpsTracer(), max_rollouts=len(tasks))
    async with serving(tokenizer) as llm:
        await store.add_resources({"llm": llm})
        queued = [await store.enqueue_rollout(row) for row in task_rows(tasks)]
        with runner.run_context(agent=agent, store=store):
            await runner.iter()
    for one in queued:
        rollout = await store.get_rollout_by_id(one.rollout_id)
        found.append((rollout.status, agl.TracerTraceToTriplet().adapt(await store.query_spans(one.rollout_id))))
    return found


def compare_triplets(triplets: Sequence[Any], one: Trajectory) -> None:
    """Each turn with sampled tokens is a triplet: its prompt, its ids and its log-probs. The last one has the reward."""
    (segment,) = one.segments
    ids, done = segment.ids.tolist(), 0
    for triplet, span in zip(triplets, segment.spans, strict=True):
        assert triplet.prompt["token_ids"] == ids[: span.start]
        assert triplet.response["token_ids"] == ids[span.start : span.stop]
        wanted = segment.logprobs[done : done + span.stop - span.start].tolist()
        assert [entry["logprob"] for entry in triplet.response["logprobs"]] == wanted
        done += len(wanted)
    assert [triplet.reward for triplet in triplets[:-1]] == [None] * (len(triplets) - 1)
    assert triplets[-1].reward == one.reward


def test_two_hundred_episodes_arrive_token_by_token(tokenizer: Any) -> None:
    tasks = rough_tasks(200)
    played = expected(tasks, tokenizer, context_length=NARROW, apart=0.0)
    assert_rough(played, overflow=True)
    found = run(played_by(lit_agent(max_tokens=MAX_TOKENS), tasks, tokenizer))
    for (status, triplets), one in zip(found, played, strict=True):
        assert status == ("failed" if one.stop.failed else "succeeded")
        if one.stop.failed:  # Agent Lightning keeps the calls of a failed attempt, and no reward
            assert [triplet.reward for triplet in triplets] == [None] * len(triplets)
        else:
            compare_triplets(triplets, one)


def test_a_failed_episode_is_raised(tokenizer: Any) -> None:
    broken = next(one.task for one in expected(rough_tasks(40), tokenizer) if one.stop.failed)
    agent = lit_agent(max_tokens=MAX_TOKENS)

    async def play() -> None:
        async with serving(tokenizer) as llm:
            await agent(task_rows([broken])[0], llm)

    with pytest.raises(InfrastructureError, match=r"Agent Lightning cannot record.*broken on purpose"):
        run(play())


def test_sampling_parameters_reach_the_server_beside_those_of_the_adapter() -> None:
    """``extra_body`` and ``logprobs`` are names that the adapter sets too."""
    bodies: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        choice = {"index": 0, "message": {"role": "assistant", "content": "?"}, "finish_reason": "length"}
        return web.json_response({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    async def play(**parameters: Any) -> None:
        async with answering(answer) as url:
            llm = agl.LLM(endpoint=f"{url}/v1", model="m", sampling_parameters=parameters)
            await lit_agent(max_tokens=8)(task_rows([Task(GAME, 1)])[0], llm)

    run(play(temperature=0.5, logprobs=False, max_tokens=99, extra_body={"top_k": 5}))
    run(play())
    first, second = ({key: value for key, value in body.items() if key != "messages"} for body in bodies)
    asked = {"model": "m", "max_tokens": 8, "return_token_ids": True}
    assert first == asked | {"logprobs": False, "temperature": 0.5, "top_k": 5}
    assert second == asked | {"logprobs": True}


def test_retries_are_left_to_agent_lightning() -> None:
    with pytest.raises(UsageError, match="max_attempts"):
        lit_agent(retries=1)


def test_a_thousand_episodes_that_agent_lightning_abandons_leave_nothing() -> None:
    agent, silent = lit_agent(), Silent()

    async def abandon() -> None:
        async def answer(request: web.Request) -> web.Response:
            answered: web.Response = await silent(request)
            return answered

        async with answering(answer) as url:
            llm = agl.LLM(endpoint=f"{url}/v1", model="m", api_key="none")
            rows = task_rows(Task(HELD, seed) for seed in range(EPISODES))
            await cut_off(asyncio.gather(*(agent(row, llm) for row in rows)), silent)

    with all_closed():
        run(abandon())
