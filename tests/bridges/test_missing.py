"""A bridge whose framework is missing, or has another interface, says which version was tried."""

import importlib
import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from palestra import make
from palestra.bridges import (
    agent_lightning,
    art,
    gem,
    inspect,
    openenv,
    openrlhf,
    rl2,
    skyrl,
    skyrl_generator,
    slime,
    tinker,
    trl,
    verifiers,
    verl,
)
from palestra.bridges.versions import TRIED
from palestra.errors import MissingExtra

ROOT = Path(__file__).parents[2]
GAME = "game:GuessTheNumber-v0-easy"


def class_of(module: str, name: str) -> Callable[[], Any]:
    """The way to a class that a module makes when it is asked for."""
    return lambda: getattr(importlib.import_module(f"palestra.bridges.{module}"), name)


def call(function: Any, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """A call with arguments that the function may not have."""
    return lambda: function(*args, **kwargs)


CASES = [
    ("agent_lightning", "agentlightning", agent_lightning.lit_agent, "rollout"),
    ("areal", "areal.api", class_of("areal", "PalestraWorkflow"), "RolloutWorkflow"),
    ("art", "art", art._art, "Trajectory"),
    ("gem", "gem.envs.registration", gem.register_in_gem, "ENV_REGISTRY"),
    ("gem", "gem", lambda: make("gem:game:Sudoku-v0"), "make"),
    ("gymnasium", "gymnasium", lambda: make("gymnasium:CartPole-v1"), "error"),
    ("harbor", "harbor.environments.base", class_of("harbor", "Box"), "BaseEnvironment"),
    ("inspect", "inspect_ai", lambda: inspect.inspect_task(GAME, n=1), "Task"),
    ("inspect", "inspect_ai.solver", lambda: make("inspect:module:task"), "TaskState"),
    ("nemo_gym", "resources_servers.gymnasium", class_of("nemo_gym", "PalestraServer"), "GymnasiumServer"),
    ("openenv", "openenv.core.env_server.http_server", lambda: openenv.openenv_app(GAME), "create_fastapi_app"),
    ("openrlhf", "openrlhf.utils.agent", openrlhf.agent_executor, "AgentExecutorBase"),
    ("openrlhf", "openrlhf.utils.agent", lambda: openrlhf.multi_turn_executor("m"), "AgentInstanceBase"),
    ("skyrl", "skyrl.train.generators.base", lambda: skyrl_generator.generator(None, None, None), "GeneratorInterface"),
    ("skyrl_rows", "skyrl_gym.envs.base_text_env", skyrl.register, "BaseTextEnv"),
    ("skyrl_rows", "skyrl_gym", lambda: make("skyrl:gsm8k").reset(seed=1), "make"),
    ("slime", "slime.utils.types", slime._slime, "Sample"),
    ("textarena", "textarena", lambda: make("textarena:TicTacToe-v0-raw"), "make"),
    ("tinker", "tinker_cookbook.rl.types", lambda: tinker.task_source([], tinker.GroupOptions("m")), "Env"),
    ("verifiers", "verifiers.v1", verifiers.plugin, "AgentConfig"),
    ("verifiers", "verifiers.v1.utils.loaders", lambda: make("verifiers:taskset"), "import_taskset"),
    ("verl", "verl.experimental.agent_loop.agent_loop", verl.agent_loop, "AgentLoopBase"),
]
"""Bridge, the module of its framework that it asks for first, a use, and the name that it misses in an empty module."""

CALLS = [
    ("rl2", call(rl2.reset, {}, "new")),
    ("rl2", call(rl2.step, state="s", action="a", extra_info={}, new=1)),
    ("slime", call(slime.generate, "args", "sample")),
    ("trl", call(trl.rollout_func(), [], None, "new")),
    ("trl", call(trl.rollout_func(), [], object())),
]
"""Bridge, and what a framework with another interface does: other arguments, or an object without the attributes."""


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package look as if it were not installed."""
    for function in (skyrl.text_env, tinker._tinker, verifiers.plugin, inspect._inspect):
        function.cache_clear()

    def hide(package: str) -> None:
        for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return hide


def says(bridge: str) -> str:
    """What the message has to say: the version that was tried, and what to type."""
    tried = TRIED[bridge]
    return f"(?s)(tried with {re.escape(f'{tried.package} {tried.version}')}.*)?{re.escape(tried.fix)}"


@pytest.mark.parametrize(("bridge", "module", "use"), [case[:3] for case in CASES])
def test_a_missing_framework(bridge: str, module: str, use: Callable[[], Any], absent: Callable[[str], None]) -> None:
    absent(module.partition(".")[0])
    with pytest.raises(MissingExtra, match=says(bridge)):
        use()


@pytest.mark.parametrize(("bridge", "module", "use", "lacks"), CASES)
def test_a_framework_with_another_interface(
    bridge: str, module: str, use: Callable[[], Any], lacks: str, absent: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    absent(module.partition(".")[0])
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        stub = ModuleType(name)
        stub.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, stub)
    with pytest.raises(MissingExtra, match=f"tried with {re.escape(' '.join(TRIED[bridge][:2]))}; .*: .* has no {lacks}"):
        use()


@pytest.mark.parametrize(("bridge", "use"), CALLS)
def test_a_framework_that_uses_an_adapter_in_another_way(bridge: str, use: Callable[[], Any]) -> None:
    with pytest.raises(MissingExtra, match=f"tried with {re.escape(' '.join(TRIED[bridge][:2]))}; "):
        use()


def test_every_bridge_is_tested_here_and_names_the_version_that_the_contract_tests_install() -> None:
    assert {case[0] for case in CASES} | {call[0] for call in CALLS} == set(TRIED)
    elsewhere = {"gymnasium": "constraints.txt", "openenv": ".ci/openenv-constraints.txt"}
    for bridge, tried in TRIED.items():
        pinned = (ROOT / elsewhere.get(bridge, f"constraints/{bridge}.txt")).read_text()
        assert f"{tried.package}=={tried.version}" in pinned or f"at {tried.version}," in pinned, bridge
