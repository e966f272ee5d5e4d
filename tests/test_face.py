import os
import subprocess
import sys

import pytest

import palestra

FACE = """
AsyncEnv Completion Conversation Env Image Message Policy Step StopReason Task Text Tool Trajectory TrajectoryGroup Turn
VectorEnv Wrapper as_async check_env collect evaluate grading list_envs make make_async make_vec mix register rollout
"""


def test_the_public_face_is_a_decision() -> None:
    assert sorted(palestra.__all__) == sorted(FACE.split())
    assert all(hasattr(palestra, name) for name in palestra.__all__)


@pytest.mark.parametrize("heavy", ["torch", "ray", "transformers", "pandas", "aiohttp", "typer", "rich"])
def test_importing_palestra_loads_nothing_heavy(heavy: str, loaded_by_palestra: frozenset[str]) -> None:
    assert heavy not in loaded_by_palestra


@pytest.fixture(scope="module")
def loaded_by_palestra() -> frozenset[str]:
    told = subprocess.run(
        [sys.executable, "-c", "import palestra, sys; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(told.stdout.split())


def test_the_readme_loop_of_gem_runs_with_only_the_import_changed() -> None:
    import palestra as gem

    env = gem.make("game:GuessTheNumber-v0")
    _observation, _info = env.reset()
    turns = 0
    while True:
        turns += 1
        action = env.sample_random_action()
        _observation, _reward, terminated, truncated, _info = env.step(action)
        if terminated or truncated:
            break
    assert terminated or truncated
    assert turns <= 7
