import inspect
import os
import re
import subprocess
import sys

import pytest

import palestra
from palestra.installation import how_to_install

FACE = """
AsyncEnv ChatPolicy Completion Conversation Endpoint Env Image Message Policy SampledPolicy Step StopReason Task Text Tool
TrainConfig Trajectory TrajectoryGroup Turn UseTools VectorEnv Wrapper as_async check_env collect errors evaluate flatten
grading list_envs make make_async make_vec mix play policies print_envs read_trajectories register rollout tool tools train
training wrappers
"""
NEED_TORCH = {"TrainConfig", "train"}


def test_the_public_face_is_a_decision() -> None:
    assert sorted(palestra.__all__) == sorted(FACE.split())
    assert all(hasattr(palestra, name) for name in palestra.__all__ if name not in NEED_TORCH)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        palestra.no_such_name  # noqa: B018


@pytest.mark.torch
def test_the_face_reaches_training() -> None:
    assert palestra.train.__module__ == "palestra.training.run"
    assert palestra.TrainConfig.__module__ == "palestra.training.config"


def test_training_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(palestra, "import_module", missing)
    monkeypatch.delitem(palestra.__dict__, "train", raising=False)
    with pytest.raises(palestra.errors.MissingExtra, match=re.escape(f"palestra.train needs torch: {how_to_install('train')}")):
        palestra.train  # noqa: B018


def test_dir_shows_the_whole_face(seen_before_use: frozenset[str]) -> None:
    assert set(palestra.__all__) - NEED_TORCH <= seen_before_use


@pytest.mark.slow
def test_help_works_without_torch() -> None:
    code = (
        "import sys\nsys.modules['torch'] = None\nimport palestra, pydoc\n"
        "print(pydoc.render_doc(palestra)[:100], 'train' in dir(palestra))"
    )
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=True)
    assert "Palestra" in run.stdout
    assert run.stdout.endswith("False\n")


@pytest.fixture(scope="module")
def seen_before_use(loaded_by_palestra: frozenset[str]) -> frozenset[str]:
    return frozenset(name.removeprefix("palestra/") for name in loaded_by_palestra if name.startswith("palestra/"))


def test_every_function_of_the_face_explains_itself() -> None:
    """Args, what comes back or is raised, and an example, for what users call."""
    for name in (
        "make",
        "make_async",
        "register",
        "list_envs",
        "mix",
        "as_async",
        "rollout",
        "collect",
        "evaluate",
        "make_vec",
    ):
        text = inspect.getdoc(getattr(palestra, name)) or ""
        assert "Args:" in text, name
        assert "Example" in text or "Returns:" in text or "Yields:" in text, name


@pytest.mark.parametrize(
    "heavy", ["torch", "ray", "transformers", "pandas", "aiohttp", "typer", "rich", "asyncio", "numpy.random"]
)
def test_importing_palestra_loads_nothing_heavy(heavy: str, loaded_by_palestra: frozenset[str]) -> None:
    assert heavy not in loaded_by_palestra


@pytest.fixture(scope="module")
def loaded_by_palestra() -> frozenset[str]:
    told = subprocess.run(
        [sys.executable, "-c", "import palestra, sys; print(*sys.modules, *(f'palestra/{name}' for name in dir(palestra)))"],
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
