import os
import re
import subprocess
import sys

import pytest

import palestra
from palestra.foundation.installation import how_to_install

FACE = """
AsyncEnv ChatPolicy Completion Conversation Endpoint Env Image Message Policy SampledPolicy Step StopReason Task Text Tool
TrainConfig Trajectory TrajectoryGroup Turn UseTools VectorEnv Wrapper as_async check_env collect errors evaluate flatten
grading list_envs make make_async make_vec mix play policies print_envs read_trajectories register rollout tool tools train
training wrappers
"""
NEED_TORCH = {"train"}


def test_the_public_face_is_a_decision() -> None:
    assert sorted(palestra.__all__) == sorted(FACE.split())
    assert all(hasattr(palestra, name) for name in palestra.__all__ if name not in NEED_TORCH)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        palestra.no_such_name  # noqa: B018


def test_training_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(palestra, "import_module", missing)
    monkeypatch.delitem(palestra.__dict__, "train", raising=False)
    with pytest.raises(palestra.errors.MissingExtra, match=re.escape(f"palestra.train needs torch: {how_to_install('train')}")):
        palestra.train  # noqa: B018


HEAVY = {"torch", "ray", "transformers", "pandas", "aiohttp", "typer", "rich", "asyncio", "numpy.random"}


def test_importing_palestra_loads_nothing_heavy_and_dir_shows_the_face_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import palestra; print(*sys.modules, '|', *dir(palestra))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    modules, _, shown = ended.stdout.partition("|")
    assert HEAVY & set(modules.split()) == {"torch"}
    assert set(palestra.__all__) - set(shown.split()) == NEED_TORCH


def test_the_readme_loop_of_gem_runs_with_only_the_import_changed() -> None:
    import palestra as gem

    env = gem.make("game:GuessTheNumber-v0")
    _observation, _info = env.reset()
    for _turn in range(8):
        _observation, _reward, terminated, truncated, _info = env.step(env.sample_random_action())
        if terminated or truncated:
            break
    assert terminated or truncated
