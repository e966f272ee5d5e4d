"""NeMo Gym's own ``GymnasiumAgent`` plays against the server: its texts, rewards and ends are those of Palestra's loop."""

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

from palestra import StopReason, Task, Trajectory, collect
from palestra.bridges import nemo_gym as bridge
from palestra.errors import UsageError
from palestra.trajectory import Finish, text_of
from tests.bridges.abandoned import EPISODES, HELD, all_closed
from tests.bridges.bridging import GAME, WHOLE, Writer, assert_rough, rough_tasks, run, wait_for, written

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


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

    def __init__(self, lease: float = 600.0, envs: list[str] | None = None) -> None:
        config, client = BaseResourcesServerConfig(host="", port=0, entrypoint="", name="env"), MagicMock(spec=ServerClient)
        allowed = ["tests.*"] if envs is None else envs
        self.server = bridge.PalestraServer(config=config, server_client=client, lease_seconds=lease, envs=allowed)
        self.transport = httpx.ASGITransport(app=self.server.setup_webserver())
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
            said = written([text_in(item) for item in json.input])
            return Answer(response(said.text, cut=said.finish is Finish.LENGTH).encode(), {})
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
    tasks = rough_tasks(200)
    ours: list[Trajectory] = collect(tasks, Writer(), retries=0)
    assert_rough(ours)
    stage = Stage()
    for task, one in zip(tasks, ours, strict=True):
        if one.stop.failed:
            with pytest.raises(Exception, match=r"broken on purpose|500"):
                run(stage.play(task))
            continue
        played = run(stage.play(task))
        assert texts_of(played) == [text for turn in one.turns for text in (text_of(turn.observation), turn.completion.text)]
        assert [step["reward"] for step in stage.steps] == [turn.reward for turn in one.turns]
        assert played.reward == pytest.approx(one.reward)
        assert (played.terminated, played.truncated) == (one.terminated, one.truncated)
        if one.stop is StopReason.LENGTH_CUT:
            assert stage.steps[-1]["info"] == {"stop": "length_cut"}
        else:
            assert stage.steps[-1]["observation"] == text_of(one.final_observation)
    assert stage.server.session_state == {}


def test_a_server_plays_what_it_allows_and_nothing_else() -> None:
    for envs, allowed, refused in [
        ([], GAME, WHOLE),
        ([], GAME, "data:/etc/passwd"),
        (["tests.*"], WHOLE, GAME),
    ]:
        stage = Stage(envs=envs)
        run(stage.server.reset(bridge.task_rows([Task(allowed, 0)])[0], "one"))
        run(stage.server.close_session("one"))
        with pytest.raises(UsageError, match="clients may not play"):
            run(stage.server.reset(bridge.task_rows([Task(refused, 0)])[0], "two"))
        assert stage.server.session_state == {}


def test_a_thousand_abandoned_sessions_are_closed() -> None:
    async def abandon(stage: Stage) -> None:
        for seed in range(EPISODES):
            await stage.server.reset(bridge.task_rows([Task(HELD, seed)])[0], f"session {seed}")

    with all_closed():
        stage = Stage(lease=5.0)
        run(abandon(stage))
        wait_for(lambda: all(lent.closed for lent in stage.server.session_state.values()))
        run(stage.server.reset(bridge.task_rows([Task(HELD, 0)])[0], "the next"))
        assert list(stage.server.session_state) == ["the next"]
        run(stage.server.close_session("the next"))
