"""Recipes can be read, written and documented where no package of the extra ``train`` is installed."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = """
import sys

for absent in ("torch", "transformers", "peft"):
    sys.modules[absent] = None  # importing it raises ModuleNotFoundError
import palestra
from palestra.recipes import reading, resolve
from palestra.recipes.model import ModelConfig

envs = {"game:GuessTheNumber-v0-easy": 1.0}
config = palestra.TrainConfig(model=ModelConfig("tiny:game:GuessTheNumber*"), envs=envs, steps=3)
tables = {"model": {"path": config.model.path}, "envs": envs, "steps": 3}
assert resolve(tables) == config
for preset in reading.presets():
    assert resolve({**tables, "preset": preset}) != config, preset
for recipe in reading.RECIPES.rglob("*.toml"):
    assert isinstance(resolve(recipe), palestra.TrainConfig)
    print(recipe.stem)
sys.path.insert(0, sys.argv[1])
import generate_recipes

assert generate_recipes.page() == generate_recipes.PAGE.read_text(encoding="utf-8")
"""


def test_configurations_recipes_presets_and_their_page_need_no_torch() -> None:
    program = [sys.executable, "-c", PROGRAM, str(DOCS)]
    recipes = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True).stdout.split()
    assert {"demo", "guess", "gem-math-python-qwen3-4b"} <= set(recipes)
