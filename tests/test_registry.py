import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra import Env, Step, Task, registry
from palestra.adapters import Blocking, Direct
from palestra.errors import MissingExtra, UnknownEnv, UsageError
from palestra.installation import how_to_install
from palestra.registry import Need, is_pattern, make, make_async, register, spec, unregister
from palestra.workers import InWorker
from palestra.wrappers import TurnLimit
from tests.rollout.faulty import Faulty, Pooled
from tests.test_core import Dice


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))
    monkeypatch.setattr(registry, "_later", list(registry._later))
    monkeypatch.setattr(registry, "_plugins_loaded", False)


# messages, as the journeys word them


def test_an_unknown_id_names_the_nearest_and_the_command() -> None:
    unregister("game:Sudoku-v0")
    register("game:Sudoku-v0", Dice)
    with pytest.raises(UnknownEnv) as caught:
        palestra.make("game:Sudok-v0")
    assert str(caught.value) == 'no environment "game:Sudok-v0". Did you mean "game:Sudoku-v0"? (palestra list game)'


def test_an_unknown_id_in_an_unknown_namespace() -> None:
    with pytest.raises(UnknownEnv) as caught:
        palestra.make("zzz:Qqqqqqqq")
    assert str(caught.value) == 'no environment "zzz:Qqqqqqqq". No module is called zzz either. (palestra list)'


def test_a_missing_extra_says_what_to_install() -> None:
    science = Need(label="ScienceWorld", module="no_such_module.inside", extra="science")
    java = Need(label="Java 8 or newer", program="no-such-program")
    register("sci:Boil-v0", "no_such_module:Boil", needs=[science, java])
    with pytest.raises(MissingExtra) as caught:
        palestra.make("sci:Boil-v0")
    expected = f'"sci:Boil-v0" needs ScienceWorld: {how_to_install("science")} (and Java 8 or newer: not found)'
    assert str(caught.value) == expected
    assert spec("sci:Boil-v0").missing() == (science, java)


@pytest.mark.parametrize(
    ("need", "remedy"),
    [
        (Need(label="Java", program="no-such-program"), "not found"),
        (Need(label="Java", program="no-such-program", fix="apt install java"), "apt install java"),
    ],
)
def test_a_missing_program_is_not_a_pip_extra(need: Need, remedy: str) -> None:
    register("sci:Boil-v0", Dice, needs=[need])
    with pytest.raises(MissingExtra, match=f'"sci:Boil-v0" needs Java: {remedy}'):
        make("sci:Boil-v0")


def test_needs_that_are_met_stand_in_nobodys_way() -> None:
    register("sci:Json-v0", Dice, needs=[Need(label="json", module="json", program="sh")])
    assert make("sci:Json-v0").reset(seed=0)


# ids, levels and specs


def test_a_missing_level_means_the_default_one() -> None:
    register("t:Level-v0", Faulty, levels={"easy": {"work": 1.0}, "hard": {"work": 2.0}}, default_level="hard", tags=["x"])
    assert make("t:Level-v0").unwrapped.__dict__["work"] == 2.0
    assert make("t:Level-v0-easy", work=3.0).unwrapped.__dict__["work"] == 3.0
    known = spec("t:Level-v0-easy")
    assert (known.family, known.level, known.levels, known.namespace) == ("Level", "easy", ("hard", "easy"), "t")
    assert known.tags == {"x"}
    unregister("t:Level-v0")
    assert palestra.list_envs("t:*") == []


def test_the_turn_limit_of_a_level_is_in_its_spec() -> None:
    assert spec("game:GuessTheNumber-v0-easy").max_turns == 4
    assert spec("game:GuessTheNumber-v0").max_turns == spec("game:GuessTheNumber-v0-hard").max_turns == 7


def test_listing_by_namespace_part_and_pattern() -> None:
    ids = [known.id for known in palestra.list_envs()]
    assert ids == sorted(ids)
    assert palestra.list_envs("game") == palestra.list_envs("game:*")
    assert {known.family for known in palestra.list_envs("GuessThe")} == {"GuessTheNumber"}
    assert all(known.id.endswith("-easy") for known in palestra.list_envs("game:*-easy"))


@pytest.mark.parametrize("id", ["nothing", "a b:c", "game:", ":x", "game:x y"])
def test_a_bad_id_is_refused(id: str) -> None:
    with pytest.raises(UsageError, match="is not an id"):
        register(id, Dice)


def test_registering_twice_is_harmless_and_registering_something_else_is_refused() -> None:
    register("t:Dice-v0", Dice)
    register("t:Dice-v0", Dice)
    with pytest.raises(UsageError, match="registered already"):
        register("t:Dice-v0", Faulty)
    with pytest.raises(UsageError, match='has no level "hard" to be its default'):
        register("t:Other-v0", Dice, levels={"easy": {}}, default_level="hard")


def test_a_class_that_nobody_registered_is_an_id_of_its_own() -> None:
    env = make("tests.test_core:Dice")
    env.reset(seed=0)
    assert env.task.env == "tests.test_core:Dice"
    with pytest.raises(UsageError, match="is not a class or function"):
        make("sys:path")
    with pytest.raises(UsageError, match="neither an Env nor an AsyncEnv"):
        make("builtins:dict")
    with pytest.raises(UsageError, match="has no 'Nobody'"):
        make("json:Nobody")


def test_a_namespace_that_is_also_a_module_is_a_namespace() -> None:
    with pytest.raises(UnknownEnv, match='Did you mean "math:GSM8K"'):
        make("math:GSM9K")


async def test_what_is_blocking_goes_to_a_worker_and_what_waits_does_not() -> None:
    assert isinstance(make_async("tests.rollout.faulty:Faulty"), InWorker)
    assert isinstance(make_async("tests.test_core:Dice"), Direct)
    assert isinstance(make_async("tests.rollout.faulty:Pooled").unwrapped, Pooled)
    register("t:Function-v0", lambda: Faulty())
    with pytest.raises(UsageError, match="built a blocking Faulty; register the class"):
        make_async("t:Function-v0")


def test_wrappers_of_the_spec_and_of_the_caller() -> None:
    register("t:Short-v0", "palestra.envs.games.guess_the_number:GuessTheNumber", wrappers=[partial(TurnLimit, turns=2)])
    with make("t:Short-v0") as env:
        env.reset(seed=0)
        assert not env.step("\\boxed{1}").truncated
        assert env.step("\\boxed{1}").truncated
    with make("t:Short-v0", wrappers=[partial(TurnLimit, turns=1)]) as env:
        env.reset(seed=0)
        assert env.step("\\boxed{1}").truncated


# entry points


def _package(folder: Path, name: str, body: str) -> None:
    (folder / f"{name}.py").write_text(body)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[palestra.envs]\n{name} = {name}\n")


def test_a_package_brings_environments_through_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, "third_party_gym", "import palestra\npalestra.register('third:Dice-v0', 'tests.test_core:Dice')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert palestra.make("third:Dice-v0").reset(seed=0)
        assert [known.id for known in palestra.list_envs("third")] == ["third:Dice-v0"]
    finally:
        sys.modules.pop("third_party_gym", None)


def test_a_broken_package_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, "broken_gym", "1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(UserWarning, match=r"the plugin broken_gym \(broken_gym\) failed to load: ZeroDivisionError"):
        assert palestra.list_envs("game")


def test_an_address_is_no_pattern() -> None:
    assert is_pattern("game:*-easy")
    assert not is_pattern("game:Sudoku-v0")
    assert not is_pattern("remote:http://[::1]:8000#game:Sudoku-v0")
    assert not is_pattern("remote:http://127.0.0.1:8000/?a=b#game:Sudoku-v0")


class Sized(Env):
    def __init__(self, size: int = 3, max_turns: int = 5) -> None:
        super().__init__()
        self.size = size

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return f"size {self.size}", {}

    def step(self, action: str) -> Step:
        return Step("", 0.0, True, False, {})


def test_an_unknown_option_is_answered_with_the_valid_ones() -> None:
    register("sized:One-v0", Sized)
    for made in (palestra.make, palestra.make_async):
        with pytest.raises(UsageError) as caught:
            made("sized:One-v0", max_turn=3)
        assert str(caught.value) == (
            "\"sized:One-v0\": got an unexpected keyword argument 'max_turn'. "
            'Did you mean "max_turns"? Its options are size, max_turns.'
        )


def test_a_type_error_of_the_class_itself_is_not_an_unknown_option() -> None:
    def broken(size: int = 0) -> Env:
        raise TypeError("mine")

    register("sized:Broken-v0", broken)
    with pytest.raises(TypeError, match=r"^mine$"):
        palestra.make("sized:Broken-v0", size=2)


def test_keywords_that_register_does_not_know_are_those_of_the_class() -> None:
    register("sized:Wide-v0", Sized, size=7)
    with palestra.make("sized:Wide-v0") as env:
        assert env.reset(seed=0)[0] == "size 7"


@pytest.mark.parametrize("make", [palestra.make, palestra.make_async])
def test_a_wrapper_may_be_given_by_its_name(make: Any) -> None:
    env = make("game:GuessTheNumber-v0-easy", wrappers=["KeepHistory", "TurnLimit?turns=1"])
    if isinstance(env, palestra.AsyncEnv):
        env = Blocking(env)
    with contextlib.closing(env):
        first, _ = env.reset(seed=0)
        step = env.step("\\boxed{99}")
    assert step.truncated
    assert step.observation.startswith(first)


def test_a_wrapper_that_is_none_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="wrappers holds 5, expected"):
        palestra.make("game:GuessTheNumber-v0-easy", wrappers=[5])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="KeepHistry"):
        palestra.make("game:GuessTheNumber-v0-easy", wrappers=["KeepHistry"])


def test_a_blocking_class_refuses_an_unknown_option_before_any_process_starts() -> None:
    class Slow(Sized):
        blocking = True

    register("sized:Slow-v0", Slow)
    with pytest.raises(UsageError, match="unexpected keyword argument 'sise'"):
        palestra.make_async("sized:Slow-v0", sise=2)
