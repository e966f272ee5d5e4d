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
from palestra.bridges.agent_lightning import lit_agent, task_rows
from palestra.errors import InfrastructureError, UsageError
from tests.answering import answering
from tests.bridges.abandoned import Silent, cut_off
from tests.bridges.bridging import GAME, MAX_TOKENS, NARROW, Row, Speller, expected, rough_tasks, run
from tests.bridges.contract import (
    FRAMEWORK,
    Bridge,
    Received,
    test_a_thousand_abandoned_episodes_leave_nothing,  # noqa: F401
    test_two_hundred_episodes_arrive_token_by_token,  # noqa: F401
)

pytestmark = FRAMEWORK


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


def row_of(triplets: Sequence[Any]) -> Row:
    """The turns of an episode as one sequence: the prompt of each begins with all that stood before."""
    prompt = list(triplets[0].prompt["token_ids"])
    ids, mask, logprobs = list(prompt), list[int](), list[float]()
    for triplet in triplets:
        before, written = triplet.prompt["token_ids"], triplet.response["token_ids"]
        assert before[: len(ids)] == ids
        mask += [0] * (len(before) - len(ids)) + [1] * len(written)
        logprobs += [0.0] * (len(before) - len(ids)) + [entry["logprob"] for entry in triplet.response["logprobs"]]
        ids = [*before, *written]
    return Row(prompt, ids[len(prompt) :], mask, logprobs)


class Lightning(Bridge):
    context = NARROW
    apart = 0.0

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        received: list[Received | None] = run(self.played(tasks))
        return received

    async def played(self, tasks: Sequence[Task]) -> list[Received | None]:
        store, found = agl.InMemoryLightningStore(), list[Received | None]()
        runner = agl.LitAgentRunner(agl.AgentOpsTracer(), max_rollouts=len(tasks))
        self.turns = []
        async with serving(self.tokenizer) as llm:
            await store.add_resources({"llm": llm})
            queued = [await store.enqueue_rollout(row) for row in task_rows(tasks)]
            with runner.run_context(agent=lit_agent(max_tokens=MAX_TOKENS), store=store):
                await runner.iter()
        for one in queued:
            rollout = await store.get_rollout_by_id(one.rollout_id)
            triplets = agl.TracerTraceToTriplet().adapt(await store.query_spans(one.rollout_id))
            failed = rollout.status == "failed"
            assert failed or rollout.status == "succeeded"
            # Only the last call has a reward. Of a failed attempt, Agent Lightning keeps the calls, and no reward.
            assert [triplet.reward for triplet in triplets[: len(triplets) - (not failed)]] == [None] * (
                len(triplets) - (not failed)
            )
            found.append(None if failed else Received([row_of(triplets)], triplets[-1].reward))
            self.turns.append(len(triplets))
        return found

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        scored = [(count, one) for count, one in zip(self.turns, played, strict=True) if not one.stop.failed]
        assert [count for count, _ in scored] == [len(one.segments[0].spans) for _, one in scored]

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        async def answer(request: web.Request) -> web.Response:
            answered: web.Response = await silent(request)
            return answered

        agent = lit_agent()
        async with answering(answer) as url:
            llm = agl.LLM(endpoint=f"{url}/v1", model="m", api_key="none")
            await cut_off(asyncio.gather(*(agent(row, llm) for row in task_rows(tasks))), silent)


@pytest.fixture
def bridge(tokenizer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lightning:
    monkeypatch.chdir(tmp_path)  # AgentOps writes a log into the working folder
    return Lightning(tokenizer)


def test_a_failed_episode_is_raised_and_retries_are_left_to_agent_lightning(tokenizer: Any) -> None:
    broken = next(one.task for one in expected(rough_tasks(40), tokenizer) if one.stop.failed)

    async def play() -> None:
        async with serving(tokenizer) as llm:
            await lit_agent(max_tokens=MAX_TOKENS)(task_rows([broken])[0], llm)

    with pytest.raises(InfrastructureError, match=r"Agent Lightning cannot record.*broken on purpose"):
        run(play())
    with pytest.raises(UsageError, match="max_attempts"):
        lit_agent(retries=1)


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
