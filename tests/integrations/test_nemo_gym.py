"""NeMo Gym's own ``GymnasiumAgent`` plays against the server: its texts, rewards and ends are those of Palestra's loop."""

import gc
import random
import threading
import time
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("nemo_gym", reason="nemo-gym needs Python 3.12: bash scripts/bridge.sh nemo_gym")

import httpx
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent, GymnasiumAgentConfig, GymnasiumAgentRunRequest

from palestra import Task, Trajectory, collect
from palestra.integrations import nemo_gym as bridge
from palestra.trajectory import text_of
from tests.integrations.bridging import ROUGH, WHOLE, rough_tasks, run
from tests.leftovers import child_processes

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


def reply(observation: str) -> str:
    """The scripted model: a random guess that depends on the last observation; some are no guess at all."""
    chance = random.Random(observation)
    return f"\\boxed{{{chance.randint(1, 50)}}}" if chance.random() < 0.9 else "I do not know."


class Answer:
    """An answer as NeMo Gym's client reads it."""

    def __init__(self, content: bytes, cookies: dict[str, str], status: int = 200) -> None:
        self.content, self.cookies, self.status, self.ok = content, cookies, status, status < 400

    async def read(self) -> bytes:
        return self.content

    def raise_for_status(self) -> None:
        if not self.ok:
            raise RuntimeError(f"status {self.status}")


class Stage:
    """The server behind its web application, and agents that play against it with a scripted model."""

    def __init__(self, lease: float = 600.0, cut_at: int | None = None) -> None:
        config = BaseResourcesServerConfig(host="", port=0, entrypoint="", name="env")
        self.server = bridge.PalestraServer(config=config, server_client=MagicMock(spec=ServerClient), lease_seconds=lease)
        self.transport = httpx.ASGITransport(app=self.server.setup_webserver())
        self.cut_at = cut_at
        self.steps: list[dict[str, Any]] = []

    def agent(self, max_steps: int) -> GymnasiumAgent:
        config = GymnasiumAgentConfig(
            host="",
            port=0,
            entrypoint="",
            name="agent",
            resources_server=ResourcesServerRef(type="resources_servers", name="env"),
            model_server=ModelServerRef(type="responses_api_models", name="policy"),
            max_steps=max_steps,
        )
        made = GymnasiumAgent(config=config, server_client=MagicMock(spec=ServerClient))
        made.server_client.post = self.post
        return made

    async def post(self, server_name: str, url_path: str, json: Any = None, cookies: Any = None, **_: Any) -> Answer:
        if server_name == "policy":
            replies = sum(1 for item in json.input if getattr(item, "role", "") == "assistant")
            return Answer(response(reply(json.input[-1].content), cut=replies == self.cut_at).encode(), {})
        async with httpx.AsyncClient(transport=self.transport, base_url="http://env", cookies=dict(cookies or {})) as http:
            answer = await http.post(url_path, json=json)
        if url_path == "/step":
            self.steps.append(answer.json())
        return Answer(answer.content, {**dict(cookies or {}), **dict(answer.cookies)}, answer.status_code)

    async def play(self, task: Task, max_steps: int = 100) -> Any:
        self.steps = []
        request = MagicMock()
        request.cookies = {}
        (row,) = bridge.task_rows([task])
        return await self.agent(max_steps).run(request, GymnasiumAgentRunRequest(**row))


def response(text: str, cut: bool) -> str:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    made = NeMoGymResponse.model_validate(
        {
            "id": "r",
            "created_at": 0.0,
            "model": "scripted",
            "object": "response",
            "output": [item],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        }
    )
    return str(made.model_dump_json())


def texts_of(played: Any) -> list[str]:
    """All messages in order: the first observation, a reply, an observation, and so on."""
    return [text_in(item) for item in [*played.responses_create_params.input, *played.response.output]]


def text_in(item: Any) -> str:
    return str(item.content if isinstance(item.content, str) else item.content[0].text)


def test_two_hundred_episodes_have_the_same_texts_rewards_and_ends() -> None:
    tasks = rough_tasks(200, WHOLE)
    ours: list[Trajectory] = collect(tasks, reply)
    stage = Stage()
    for task, one in zip(tasks, ours, strict=True):
        played = run(stage.play(task))
        assert texts_of(played) == [text for turn in one.turns for text in (text_of(turn.observation), turn.action)]
        assert [step["reward"] for step in stage.steps] == [turn.reward for turn in one.turns]
        assert played.reward == pytest.approx(one.reward)
        assert (played.terminated, played.truncated) == (one.terminated, one.truncated)
        assert stage.steps[-1]["observation"] == text_of(one.final_observation)
    assert len({one.reward for one in ours}) > 2
    assert {one.terminated for one in ours} == {True, False}
    assert stage.server.session_state == {}


def test_a_failed_episode_is_an_error_and_not_a_zero() -> None:
    stage = Stage()
    with pytest.raises(Exception, match=r"broken on purpose|500"):
        run(stage.play(Task(ROUGH, 7)))
    assert stage.server.session_state == {}


def test_a_cut_reply_is_not_a_move() -> None:
    stage = Stage(cut_at=1)
    played = run(stage.play(Task(WHOLE, 0)))
    assert (played.terminated, played.truncated, stage.steps[-1]["info"]) == (False, True, {"stop": "length_cut"})
    assert len(stage.steps) == 2
    assert stage.server.session_state == {}


def test_a_thousand_abandoned_sessions_are_closed() -> None:
    processes = child_processes()
    stage = Stage(lease=0.05)

    async def abandon() -> None:
        for seed in range(1000):
            await stage.server.reset(bridge.task_rows([Task(WHOLE, seed)])[0], f"session {seed}")

    run(abandon())
    for _ in range(1000):
        if all(lent.closed for lent in stage.server.session_state.values()):
            break
        time.sleep(0.01)
    assert all(lent.closed for lent in stage.server.session_state.values())
    run(stage.server.reset(bridge.task_rows([Task(WHOLE, 0)])[0], "the next"))
    assert list(stage.server.session_state) == ["the next"]
    run(stage.server.close_session("the next"))
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "palestra-loop":
            thread.join(60)
    assert "palestra-loop" not in [thread.name for thread in threading.enumerate()]
    assert child_processes() <= processes
