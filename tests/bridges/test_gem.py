"""GEM's own ``make`` and ``make_vec`` on Palestra's environments, and GEM's environments in Palestra."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gem")

import gem
import numpy as np
from gem.envs.registration import ENV_REGISTRY

import palestra
from palestra import make
from palestra.bridges.gem import register_in_gem
from palestra.errors import MissingData, UsageError
from palestra.registry import family_of, spec
from palestra.suite.data import loader
from palestra.trajectory import text_of
from tests.bridges.abandoned import EPISODES, HELD, all_closed
from tests.bridges.gem_programs import PROGRAMS, with_gem, with_palestra

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

GAME = "game:GuessTheNumber-v0-easy"
STEPS = 1000
"""Random steps per family."""
GEMS = [id for id in ENV_REGISTRY if not id.startswith("palestra")]
FAMILIES = sorted({family_of(id) if id.startswith("game:") else id.partition(":")[0] for id in GEMS})


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Some rows for every data set that is not on this machine: the rows of the real ones need a network."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALESTRA_DATA", str(folder))
        loader._load.cache_clear()
        for id in GEMS:
            if not id.startswith(("game:", "rg:")):
                write_rows(id)
        yield
    loader._load.cache_clear()


def write_rows(id: str) -> None:
    try:
        with make(id) as env:
            env.reset(seed=0)
    except MissingData as missing:
        found = re.search(r"put (\S+) \(or .* with the fields (.*) into (.*)$", str(missing))
        if found is None:
            raise
        file = Path(found[3]) / found[1]
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [{field: value(field, number) for field in found[2].split(", ")} for number in range(20)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def value(field: str, number: int) -> Any:
    known = {"question": f"What is {number} + 1?", "tests": json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]}), "images": []}
    return known.get(field, str(number + 1))


def members(family: str) -> list[str]:
    return [id for id in GEMS if id == family or family in (family_of(id), id.partition(":")[0])]


def test_palestra_has_every_id_of_gem() -> None:
    assert len(GEMS) == 172
    assert {f"palestra:{id}" for id in GEMS} <= set(register_in_gem())


@pytest.mark.parametrize("family", FAMILIES)
def test_gem_make_gives_the_episodes_of_palestra(family: str) -> None:
    register_in_gem()
    ids = members(family)
    taken = 0
    for id in ids:
        taken += compare(id, gem.make(f"palestra:{id}"), -(-STEPS // len(ids)))
    assert taken >= STEPS
    print(f"{family}: {len(ids)} ids, {taken} steps")


def compare(id: str, shim: Any, steps: int) -> int:
    """Play random steps on both sides. Returns their number."""
    assert isinstance(shim, gem.Env)
    ours, taken, seed = make(id), 0, 0
    while taken < steps:
        shown, _ = shim.reset(seed=seed)
        assert shown == text_of(ours.reset(seed=seed)[0])
        over = False
        while not over and taken < steps:
            action = sampled(ours)
            assert sampled(shim) == action
            step = ours.step(action)
            observation, reward, terminated, truncated, info = shim.step(action)
            assert (observation, reward, terminated, truncated) == (text_of(step.observation), *step[1:4])
            assert info["suffix"] == ""
            over = terminated or truncated
            taken += 1
        seed += 1
    ours.close()
    shim.close()
    return taken


def sampled(env: Any) -> str:
    try:
        return str(env.sample_random_action())
    except palestra.errors.Unsupported:
        return "\\boxed{7}"


@pytest.mark.parametrize("parallel", [False, True], ids=["sync", "threads"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gem_make_vec_gives_the_episodes_of_palestra(family: str, parallel: bool) -> None:
    register_in_gem()
    ids = members(family)
    vector = gem.make_vec([f"palestra:{id}" for id in ids], async_mode=parallel, seed=5)
    ours = [make(id) for id in ids]
    shown, _ = vector.reset()
    assert shown == [text_of(env.reset(task=held.task)[0]) for env, held in zip(ours, vector.envs, strict=True)]
    for _ in range(-(-STEPS // len(ids))):
        actions = [sampled(env) for env in ours]
        observations, rewards, terminated, truncated, _ = vector.step(actions)
        for at, (env, action) in enumerate(zip(ours, actions, strict=True)):
            step = env.step(action)
            expected = text_of(step.observation)
            assert (rewards[at], terminated[at], truncated[at]) == step[1:4]
            if step.terminated or step.truncated:  # make_vec shows the first observation of the next episode
                expected = text_of(env.reset(task=vector.envs[at].task)[0])
            assert observations[at] == expected
    for env in [*ours, *vector.envs]:
        env.close()


def test_a_constructor_seed_fixes_the_episodes_and_spawn_copies_them() -> None:
    register_in_gem("game:*")
    seeds = [
        [env.reset() and env.task.seed for _ in range(3)] for env in (gem.make("palestra", env=GAME, seed=4) for _ in "ab")
    ]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3
    env = gem.make(f"palestra:{GAME}")
    env.reset(seed=1)
    env.step("\\boxed{5}")
    twin = env.spawn(same_state=True)
    assert env.step("\\boxed{2}")[:4] == twin.step("\\boxed{2}")[:4]
    assert env.spawn().reset(seed=1)[0] == env.reset(seed=1)[0]


def test_ours_may_take_the_place_of_theirs() -> None:
    kept = dict(ENV_REGISTRY)
    try:
        register_in_gem("game:*", prefix="")
        assert gem.make(GAME).reset(seed=3)[0] == make(GAME).reset(seed=3)[0]
    finally:
        ENV_REGISTRY.clear()
        ENV_REGISTRY.update(kept)


def test_a_thousand_episodes_that_a_loop_of_gem_abandons_leave_nothing() -> None:
    register_in_gem("game:*")
    with all_closed():
        for seed in range(EPISODES):
            env = gem.make("palestra", env=HELD)
            assert (env.reset(seed=seed)[0], env.step("x")[1]) == ("go", 1.0)
        del env


def test_a_vector_of_a_thousand_environments_that_gem_drops_leaves_nothing() -> None:
    register_in_gem("game:*")
    with all_closed():
        vector = gem.make_vec(["palestra"] * EPISODES, env=HELD)
        assert set(vector.reset()[0]) == {"go"}
        vector.step(["x"] * EPISODES)
        del vector


@pytest.mark.parametrize(
    "id", ["game:GuessTheNumber-v0-hard", "game:Sudoku-v0-easy", "game:Mastermind-v0-easy", "rg:letter_counting"]
)
def test_their_episodes_in_palestra(id: str) -> None:
    ours, theirs = make(f"gem:{id}"), gem.make(id)
    other = make(f"gem:{id}")  # a second one beside it, and random numbers of others between the steps, change nothing
    for seed in range(5):
        random.seed(seed)
        np.random.seed(seed)
        observation, info = theirs.reset(seed=seed)
        actions: list[str] = []
        seen: list[Any] = [observation + info.get("suffix", "")]
        over = False
        while not over and len(actions) < 30:
            actions.append(ACTIONS[len(actions) % len(ACTIONS)])
            observation, reward, terminated, truncated, info = theirs.step(actions[-1])
            over = terminated or truncated
            seen.append((observation + info.get("suffix", ""), reward, terminated and not truncated, truncated))
        found: list[Any] = [ours.reset(seed=seed)[0]]
        for action in actions:
            random.random()
            other.reset(seed=7)
            step = ours.step(action)
            found.append((step.observation, step.reward, step.terminated, step.truncated))
        assert found == seen
    ours.close()
    other.close()


ACTIONS = ["\\boxed{5}", "\\boxed{a}", "\\boxed{1 1 1}", "nothing", "\\boxed{e}", "\\boxed{25}"]


def test_what_gem_cannot_make_says_why() -> None:
    with pytest.raises(UsageError, match=r"gem-llm 0\.1\.0.* cannot make"):
        make("gem:game:NoSuch-v0")
    assert spec("gem:game:Sudoku-v0").needs[0].remedy == 'pip install "gem-llm==0.1.0"'


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_same_with_gem_and_with_palestra(name: str) -> None:
    assert with_gem(name) == with_palestra(name)
