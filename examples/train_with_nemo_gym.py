# /// script
# requires-python = ">=3.12"
# dependencies = ["palestra", "nemo-gym==0.4.0"]
# ///
"""Serve a game of Palestra to NeMo Gym, which NeMo-RL trains with.

NeMo Gym starts this file as a resources server: name it as the ``entrypoint`` of one in a configuration, with
``gymnasium_agent`` as its agent. ``--data FILE`` writes the data set. ``--smoke`` plays one episode with NeMo Gym's own agent,
and a fixed strategy in place of the model::

    uv run --find-links dist examples/train_with_nemo_gym.py --smoke
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

from palestra import Task
from palestra.bridges.nemo_gym import PalestraServer, task_rows

ENV = "game:GuessTheNumber-v0-easy"


def search(texts: list[str]) -> str:
    """The next move of a binary search."""
    low, high = 1, 10
    for way, number in re.findall(r"is (higher|lower) than (\d+)", "\n".join(texts)):
        low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
    return f"\\boxed{{{(low + high) // 2}}}"


class Answer:
    """An answer as NeMo Gym's HTTP client returns it."""

    def __init__(self, content: bytes, cookies: dict[str, str]) -> None:
        self.content, self.cookies, self.ok = content, cookies, True

    async def read(self) -> bytes:
        """Return the body."""
        return self.content


async def smoke() -> None:
    """Play one episode with NeMo Gym's agent against the web application of the server."""
    import httpx
    from nemo_gym.base_resources_server import BaseResourcesServerConfig
    from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
    from nemo_gym.server_utils import ServerClient
    from responses_api_agents.gymnasium_agent.app import GymnasiumAgent, GymnasiumAgentConfig, GymnasiumAgentRunRequest

    place = {"host": "", "port": 0, "entrypoint": ""}
    server = PalestraServer(
        config=BaseResourcesServerConfig(name="palestra", **place), server_client=MagicMock(spec=ServerClient)
    )
    transport = httpx.ASGITransport(app=server.setup_webserver())

    async def post(server_name: str, url_path: str, json=None, cookies=None, **_) -> Answer:
        if server_name == "policy":
            part = {"type": "output_text", "text": search([str(item.content) for item in json.input]), "annotations": []}
            item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
            reply = {"id": "r", "created_at": 0, "model": "", "object": "response", "output": [item], "tools": []}
            return Answer(_encode({**reply, "parallel_tool_calls": False, "tool_choice": "auto"}), {})
        async with httpx.AsyncClient(transport=transport, base_url="http://palestra", cookies=dict(cookies or {})) as http:
            answer = await http.post(url_path, json=json)
        return Answer(answer.content, {**(cookies or {}), **answer.cookies})

    config = GymnasiumAgentConfig(
        name="agent",
        resources_server=ResourcesServerRef(type="resources_servers", name="palestra"),
        model_server=ModelServerRef(type="responses_api_models", name="policy"),
        **place,
    )
    agent = GymnasiumAgent(config=config, server_client=MagicMock(spec=ServerClient))
    agent.server_client.post = post
    (row,) = task_rows([Task(ENV, seed=3)])
    played = await agent.run(MagicMock(cookies={}), GymnasiumAgentRunRequest(**row))
    print("messages", len(played.response.output), "reward", played.reward, "terminated", played.terminated)
    assert played.reward > 0.5, "binary search did not find the number"


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()


if __name__ == "__main__":
    if sys.argv[1:] == ["--smoke"]:
        asyncio.run(smoke())
    elif sys.argv[1:2] == ["--data"]:
        rows = task_rows(Task(ENV, seed) for seed in range(4096))
        Path(sys.argv[2]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        PalestraServer.run_webserver()
