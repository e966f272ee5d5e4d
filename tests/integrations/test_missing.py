"""A bridge whose framework is missing says which version was tried."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from palestra import make
from palestra.errors import MissingExtra
from palestra.integrations import art, gem, inspect, openrlhf, skyrl, skyrl_generator, slime, tinker, verifiers, verl

GAME = "game:GuessTheNumber-v0-easy"


def class_of(module: str, name: str) -> Callable[[], Any]:
    """The way to a class that a module makes when it is asked for."""
    return lambda: getattr(importlib.import_module(f"palestra.integrations.{module}"), name)


@pytest.mark.parametrize(
    ("package", "use", "tried"),
    [
        ("areal", class_of("areal", "PalestraWorkflow"), "areal==1.0.4"),
        ("art", art._art, "openpipe-art==0.5.18"),
        ("gem", gem.register_in_gem, "gem-llm==0.1.0"),
        ("inspect_ai", lambda: inspect.inspect_task(GAME, n=1), "inspect-ai==0.3.285"),
        ("resources_servers", class_of("nemo_gym", "PalestraServer"), "nemo-gym==0.4.0"),
        ("openrlhf", openrlhf.agent_executor, "openrlhf 0.11.2"),
        ("openrlhf", lambda: openrlhf.multi_turn_executor("m"), "openrlhf 0.11.2"),
        ("skyrl_gym", skyrl.register, "skyrl-gym==0.4.0"),
        ("skyrl_gym", lambda: skyrl_generator.generator(None, None, None), "skyrl-gym==0.4.0"),
        ("slime", slime._slime, "commit 624b824"),
        ("tinker_cookbook", lambda: tinker.task_source([], tinker.GroupOptions("m")), "tinker-cookbook==0.5.8"),
        ("verifiers", verifiers.plugin, "verifiers==0.4.0"),
        ("verl", verl.agent_loop, "verl 0.9.1"),
        ("gem", lambda: make("gem:game:Sudoku-v0"), "gem-llm==0.1.0"),
        ("inspect_ai", lambda: make("inspect:module:task"), "inspect-ai==0.3.285"),
        ("skyrl_gym", lambda: make("skyrl:gsm8k"), "skyrl-gym==0.4.0"),
        ("textarena", lambda: make("textarena:TicTacToe-v0-raw"), "textarena==0.7.4"),
        ("verifiers", lambda: make("verifiers:taskset"), "verifiers==0.4.0"),
        ("gymnasium", lambda: make("gymnasium:CartPole-v1"), r"palestra\[gymnasium\]"),
    ],
)
def test_the_message_names_the_version_that_was_tried(
    package: str, use: Callable[[], Any], tried: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    for function in (skyrl.text_env, tinker._tinker, verifiers.plugin, inspect._inspect):
        function.cache_clear()
    with pytest.raises(MissingExtra, match=tried):
        use()
