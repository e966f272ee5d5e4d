"""Presets: a paper's keys as defaults, each of which the recipe and the command line may replace."""

from pathlib import Path

import msgspec
import pytest

from palestra.errors import UsageError
from palestra.recipes.reading import kept, presets, resolve, saved_config

PLAIN = """
steps = 3
[model]
path = "tiny:game:GuessTheNumber*"
[envs]
"game:GuessTheNumber-v0-easy" = 1.0
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(PLAIN)
    return path


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_the_same_as_its_keys_written_out(recipe: Path, tmp_path: Path, name: str) -> None:
    chosen = resolve(recipe, [f"preset={name}"])
    assert chosen != resolve(recipe)
    # Top-level keys of the preset must stand before the first table of the recipe.
    written = tmp_path / "written.toml"
    written.write_text(
        presets()[name].read_text().partition("\n[")[0] + PLAIN + "[" + presets()[name].read_text().partition("\n[")[2]
    )
    assert msgspec.structs.replace(chosen, preset=None) == resolve(written)
    (tmp_path / "config.json").write_bytes(msgspec.json.encode({"run": "training", **kept(chosen, {})}))
    assert saved_config(tmp_path) == chosen


def test_every_key_of_a_preset_can_be_replaced(recipe: Path) -> None:
    recipe.write_text(PLAIN + "[learner.loss]\nclip_high = 0.5\n")
    config = resolve(recipe, ["preset=dapo", "partial.refill=1", "play.overlong=none"])
    assert config.learner.loss.clip_high == 0.5  # the recipe's
    assert config.partial.refill == 1  # the command line's
    assert config.play.overlong is None
    assert not config.partial.keep_constant  # the preset's
    assert resolve(recipe, ["preset=dapo"]).play.overlong is not None


def test_a_preset_of_your_own_is_a_file_beside_the_recipe(recipe: Path) -> None:
    (recipe.parent / "ours.toml").write_text("epochs = 3\n")
    assert resolve(recipe, ["preset=ours.toml"]).epochs == 3
    with pytest.raises(UsageError, match=r'no preset "grop": name a TOML file, or one of .*grpo'):
        resolve(recipe, ["preset=grop"])
    (recipe.parent / "ours.toml").write_text("epoch = 3\n")
    with pytest.raises(UsageError, match='a recipe has no "epoch"'):
        resolve(recipe, ["preset=ours.toml"])
