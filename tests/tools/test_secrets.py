import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.tools.test_mcp import PLAIN
from tests.wrappers.test_use_tools import Recorder

from palestra.errors import InfrastructureError
from palestra.grading.code import CodeJudge, FunctionCase
from palestra.sandbox import Bubblewrap, Program
from palestra.tools import tool
from palestra.tools.mcp import McpServer
from palestra.tools.python import PythonTool
from palestra.tools.search import SearchTool
from palestra.tools.search.remote import RemoteRetriever
from palestra.trajectory import ToolCall, ToolResult
from palestra.trajectory.calls import format_call
from palestra.wrappers import UseTools

LOOK = """
import os
found = dict(os.environ), open('/proc/self/cmdline').read(), open('/proc/self/environ').read()
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('environ', 'cmdline'):
        try: found += (open(f'/proc/{pid}/{name}').read(),)
        except OSError: pass
print(found)
"""


class Careless:
    """A tool that puts its token and its arguments into everything it says."""

    description = ""
    parameters: Mapping[str, Any] = {"type": "object"}

    def __init__(self, name: str, token: str) -> None:
        self.name = name
        self.secrets = (token,)

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        if arguments.get("fail"):
            raise RuntimeError(f"403 for https://user:{self.secrets[0]}@host/?key={self.secrets[0]}")
        return ToolResult(f"called with Bearer {self.secrets[0]}")


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fifty secrets, thirty of them in our own environment."""
    made = [f"CANARY-{secrets.token_hex(12)}" for _ in range(50)]
    for number, canary in enumerate(made[:30]):
        monkeypatch.setenv(f"API_KEY_{number}", canary)
    return made


@pytest.mark.gate
@pytest.mark.slow
async def test_fifty_secrets_are_seen_nowhere(canaries: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    heard: list[str] = []
    careless = [Careless(f"careless_{number}", canary) for number, canary in enumerate(canaries[30:40])]
    async with (
        Bubblewrap(warm=1) as sandbox,
        McpServer(command=PLAIN, environment={"TOKEN": canaries[40]}, allow=["refuse", "environment"]) as server,
    ):
        heard.append((await sandbox.run(Program(code=LOOK))).text)
        launcher = sandbox._pool._process
        assert launcher is not None
        heard += [Path(f"/proc/{launcher.pid}/{name}").read_text() for name in ("environ", "cmdline")]
        verdict = await CodeJudge(sandbox=sandbox).function(
            "import os\ndef f(): return str(os.environ)", "f", [FunctionCase((), "")]
        )
        heard.append(verdict.problem)
        env = UseTools(Recorder(), [PythonTool(sandbox), *careless, *await server.tools()])
        heard.append(str(await env.reset(seed=0)))
        calls = [ToolCall("python", {"code": LOOK}), ToolCall("refuse", {}), ToolCall("environment", {})]
        calls += [ToolCall(made.name, {"fail": fail}) for made in careless for fail in (True, False)]
        heard += [str(await env.step(format_call(call))) for call in calls]
        await env.close()
    for number, canary in enumerate(canaries[41:]):
        in_address = f"user:{canary}@" if number % 2 else ""
        remote = RemoteRetriever(f"http://{in_address}127.0.0.1:9", token="" if in_address else canary)
        with pytest.raises(InfrastructureError) as caught:
            await SearchTool(remote)(query="x")
        heard.append(f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}")
        await remote.close()
    everything = "\n".join([*heard, caplog.text])
    assert [canary for canary in canaries if canary in everything] == []
    assert len(everything) > 1000
    assert os.environ["API_KEY_0"] == canaries[0]


async def test_a_tool_without_secrets_says_what_it_likes() -> None:
    @tool
    async def plain() -> str:
        """Speak."""
        return "CANARY"

    env = UseTools(Recorder(), [plain])
    await env.reset(seed=0)
    assert "CANARY" in str((await env.step(format_call(ToolCall("plain", {})))).observation)
