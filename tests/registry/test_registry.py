import contextlib
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.rollouts.faulty import Faulty, Pooled
from tests.test_core import Dice

import palestra
from palestra import Env, Step, Task, registry
from palestra.adapters import Blocking, Direct
from palestra.adapters.workers import InWorker
from palestra.errors import MissingExtra, UnknownEnv, UsageError
from palestra.foundation.installation import how_to_install
from palestra.registry import Need, is_pattern, make, make_async, register, spec, unregister
from palestra.wrappers import TurnLimit

SOURCE = Path(palestra.__file__).parents[1]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    palestra.list_envs()  # Palestra's own ids are registered once per process: keep them
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))
    monkeypatch.setattr(registry, "_plugins_loaded", False)


# messages, as the journeys word them


@pytest.mark.parametrize(
    ("id", "error", "message"),
    [
        ("game:Sudok-v0", UnknownEnv, 'no environment "game:Sudok-v0". Did you mean "game:Sudoku-v0"? (palestra list game)'),
        ("zzz:Qqqqqqqq", UnknownEnv, 'no environment "zzz:Qqqqqqqq". No module is called zzz either. (palestra list)'),
        ("math:GSM9K", UnknownEnv, 'Did you mean "math:GSM8K"'),
        ("sys:path", UsageError, "is not a class or function"),
        ("builtins:dict", UsageError, "neither an Env nor an AsyncEnv"),
        ("json:Nobody", UsageError, "has no 'Nobody'"),
    ],
)
def test_an_id_that_names_no_environment_is_refused(id: str, error: type[Exception], message: str) -> None:
    unregister("game:Sudoku-v0")
    register("game:Sudoku-v0", Dice)
    with pytest.raises(error, match=re.escape(message)):
        make(id)


@pytest.mark.parametrize(
    ("need", "remedy"),
    [
        (Need(label="Java", program="no-such-program"), "not found"),
        (Need(label="Java", program="no-such-program", fix="apt install java"), "apt install java"),
        (Need(label="json", module="json", program="sh"), ""),
    ],
)
def test_a_program_that_is_missing_says_so(need: Need, remedy: str) -> None:
    register("sci:Boil-v0", Dice, needs=[need])
    with pytest.raises(MissingExtra, match=f'"sci:Boil-v0" needs Java: {remedy}') if remedy else contextlib.nullcontext():
        assert make("sci:Boil-v0").reset(seed=0)


def test_a_missing_extra_says_what_to_install() -> None:
    science = Need(label="ScienceWorld", module="no_such_module.inside", extra="science")
    java = Need(label="Java 8 or newer", program="no-such-program")
    register("sci:Boil-v0", "no_such_module:Boil", needs=[science, java])
    with pytest.raises(MissingExtra) as caught:
        palestra.make("sci:Boil-v0")
    expected = f'"sci:Boil-v0" needs ScienceWorld: {how_to_install("science")} (and Java 8 or newer: not found)'
    assert str(caught.value) == expected
    assert spec("sci:Boil-v0").missing() == (science, java)


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
    assert [spec(f"game:GuessTheNumber-v0{level}").max_turns for level in ("-easy", "-hard", "")] == [4, 7, 7]


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


async def test_what_is_blocking_goes_to_a_worker_and_what_waits_does_not() -> None:
    assert isinstance(make_async("tests.rollouts.faulty:Faulty"), InWorker)
    assert isinstance(make_async("tests.test_core:Dice"), Direct)
    assert isinstance(make_async("tests.rollouts.faulty:Pooled").unwrapped, Pooled)
    register("t:Function-v0", lambda: Faulty())
    with pytest.raises(UsageError, match="built a blocking Faulty; register the class"):
        make_async("t:Function-v0")


def test_wrappers_of_the_spec_and_of_the_caller() -> None:
    register("t:Short-v0", "palestra.suite.games.guess_the_number:GuessTheNumber", wrappers=[partial(TurnLimit, turns=2)])
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


@pytest.mark.parametrize(
    ("namespace", "registration"),
    [
        ("game", "palestra.register('game:Dice-v0', 'tests.test_core:Dice')"),
        ("web", "palestra.register('web:Dice-v0', 'tests.test_core:Dice')"),
        ("harbor", "palestra.registry.register_scheme('harbor', 'tests.test_core:Dice')"),
        ("data", "palestra.registry.register_files('data', 'tests.test_core:Dice')"),
    ],
)
def test_no_package_can_take_a_namespace_of_palestras_own(
    namespace: str, registration: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = spec("harbor:tasks#one"), spec("data:questions.jsonl")
    _package(tmp_path, "taking_gym", f"import palestra\n{registration}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with pytest.warns(UserWarning, match=f'taking_gym.*the namespace "{namespace}" is Palestra'):
            ids = {known.id for known in palestra.list_envs()}
    finally:
        sys.modules.pop("taking_gym", None)
    assert not ids & {"game:Dice-v0", "web:Dice-v0"}
    assert before == (spec("harbor:tasks#one"), spec("data:questions.jsonl"))


_SEARCH_IS_FORBIDDEN = """
from importlib import metadata

def entry_points(**_):
    raise SystemExit("the entry points were searched")

metadata.entry_points = entry_points
"""


def test_palestras_own_ids_work_from_a_checkout_without_a_search_through_entry_points() -> None:
    ids = [
        "game:GuessTheNumber-v0",
        "math:GSM8K",
        "craft:invented-depth1",
        "gem:x",
        "harbor:tasks#one",
        "remote:http://[::1]#x",
    ]
    code = f"{_SEARCH_IS_FORBIDDEN}\nfrom palestra.registry import spec\nfor id in {ids}: spec(id)"
    _run(code)
    with pytest.raises(subprocess.CalledProcessError):
        _run(f"{code}\nspec('zzz:Nobody-v0')")


def test_listing_all_ids_imports_no_environment() -> None:
    _run(
        "import sys, palestra\n"
        "palestra.list_envs()\n"
        "rooms = [m for name, m in list(sys.modules.items()) if name.startswith(('palestra.worlds.', 'palestra.bridges.'))]\n"
        "assert rooms\n"
        "kinds = [value for room in rooms for value in vars(room).values() if isinstance(value, type)]\n"
        "assert [kind for kind in kinds if issubclass(kind, palestra.Env | palestra.AsyncEnv)] == []\n"
    )


def _run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, check=True, stderr=subprocess.PIPE)


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


class BlockingSized(Sized):
    blocking = True


def broken(size: int = 0) -> Env:
    raise TypeError("mine")


def test_keywords_are_those_of_the_class_and_its_own_type_error_is_raised() -> None:
    register("sized:Wide-v0", Sized, size=7)
    with palestra.make("sized:Wide-v0") as env:
        assert env.reset(seed=0)[0] == "size 7"
    register("sized:Broken-v0", broken)
    with pytest.raises(TypeError, match=r"^mine$"):
        palestra.make("sized:Broken-v0", size=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_async(f"{__name__}:BlockingSized", sise=2), "unexpected keyword argument 'sise'"),
        (lambda: make("game:GuessTheNumber-v0-easy", wrappers=[5]), "wrappers holds 5, expected"),  # type: ignore[list-item]
        (lambda: make("game:GuessTheNumber-v0-easy", wrappers=["KeepHistry"]), "KeepHistry"),
    ],
)
def test_a_wrong_option_or_wrapper_is_refused(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_an_unknown_option_is_answered_with_the_valid_ones() -> None:
    register("sized:One-v0", Sized)
    for made in (palestra.make, palestra.make_async):
        with pytest.raises(UsageError) as caught:
            made("sized:One-v0", max_turn=3)
        assert str(caught.value) == (
            "\"sized:One-v0\": got an unexpected keyword argument 'max_turn'. "
            'Did you mean "max_turns"? Its options are size, max_turns.'
        )


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
