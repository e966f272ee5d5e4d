"""What holds for every built-in id that needs no download: the checker's contract, determinism, rewards, one answer only."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")

from tests.envs.every_id import SMALL_WIKI, playable

from palestra.checking import check_env
from palestra.checking.hostile import GROWING, SHORT
from palestra.checking.report import Status
from palestra.core import AsyncEnv, Env, Step
from palestra.envs.data.drawing import DrawnRow
from palestra.references import resolve
from palestra.registry import list_envs, make, spec
from palestra.trajectory import Task

IDS = [known.id for known in playable()]
GAMES = [id for id in IDS if id.startswith("game:")]
SINGLE = [id for id in IDS if id.startswith(("rg:", "math:"))]
DATA = [known.id for known in list_envs("*") if known.namespace in ("math", "code", "logic", "qa", "eval")]

FAMILIES = {id.partition("-")[0]: id for id in sorted(GAMES, key=lambda game: game.endswith("-random"))}
"""One level of each game: ``random``, which draws the others, where there is one."""

SECONDS = 3.0
"""What a check may take in the mean: all of them have eight minutes on two cores."""
FEW, MANY = 20, 60
LEAKY = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The programs that rg:codeio runs leave event loops open; whatever leaks elsewhere is ours, and fails."""


def level(id: str) -> Any:
    """``id`` as a parameter: the gate plays one level of each game and one id of each other namespace, ``full`` all others."""
    first = next(known for known in IDS if known.partition(":")[0] == id.partition(":")[0])
    marks = [pytest.mark.full] * (id in GAMES and id not in FAMILIES.values())
    marks += [pytest.mark.gate] * (id in FAMILIES.values() or (id not in GAMES and id == first))
    return pytest.param(id, marks=[*marks, LEAKY] if id == "rg:codeio" else marks)


@pytest.fixture(autouse=True)
def corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_WIKI_CORPUS", str(SMALL_WIKI))


@pytest.mark.slow
@pytest.mark.parametrize("id", [level(id) for id in IDS])
def test_it_passes_palestra_check(id: str) -> None:
    # The generators are looked at in other processes below, all at once: each would import the library for seconds.
    skip = [] if id in GAMES else ["same-elsewhere"]
    report = check_env(id, n=MANY if id in GAMES else FEW, skip=skip, seconds=SECONDS)
    assert [finding for finding in report.findings if finding.status is Status.FAIL] == []
    (hidden,) = [finding for finding in report.findings if finding.check == "answer-hidden"]
    assert hidden.status in (Status.PASS, Status.SKIP, Status.WARN)


EVERY_WAY = tuple(product((1, 2, 8), ("1", "4242")))
"""Numbers of workers, and hash seeds."""


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "ways", [(EVERY_WAY[0], EVERY_WAY[-1]), pytest.param(EVERY_WAY, marks=pytest.mark.full)], ids=["two", "all"]
)
def test_any_number_of_workers_and_any_hash_seed_give_the_same_episodes(ways: tuple[tuple[int, str], ...]) -> None:
    script = str(Path(__file__).with_name("every_id.py"))
    path = os.pathsep.join(part for part in sys.path if part)

    def digests(workers: int, hash_seed: str) -> dict[str, str]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        run = subprocess.run([sys.executable, script, str(workers)], env=environment, capture_output=True, check=True)
        found: dict[str, str] = json.loads(run.stdout)
        return found

    runs = {way: digests(*way) for way in ways}
    first = runs[ways[0]]
    assert set(first) == set(IDS)
    assert {how: [id for id in IDS if run[id] != first[id]] for how, run in runs.items()} == {how: [] for how in runs}


def hostile_texts(count: int, seed: int) -> Iterator[str]:
    """The checker's hostile texts, whole and broken up and put together again."""
    rng = random.Random(seed)
    texts = [*SHORT.values(), *(grow(size) for grow in GROWING.values() for size in (16, 300))]
    pieces = [
        "\\boxed{",
        "}",
        "{",
        "1",
        "0",
        " ",
        ",",
        "-",
        "99999999999999999999",
        "A",
        "reveal",
        "flag",
        "up",
        "LEFT",
        "٣",
        "\ud800",
    ]
    for number in range(count):
        if number % 3 == 0:
            yield rng.choice(texts)
        elif number % 3 == 1:
            yield f"\\boxed{{{''.join(rng.choices(pieces, k=rng.randrange(8)))}}}"
        else:
            yield "".join(rng.choices([*pieces, *texts[:8]], k=rng.randrange(12)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "hostile"])
@pytest.mark.parametrize("id", [level(id) for id in GAMES])
def test_ten_thousand_actions_raise_nothing_and_keep_the_declared_rewards_and_scores(id: str, kind: str) -> None:
    with make(id) as env:
        low, high = env.unwrapped.reward_range
        least, most = env.unwrapped.score_range
        texts = hostile_texts(10_000, 0)
        seed = taken = 0
        while taken < 10_000:
            env.reset(task=Task(id, seed))
            seed += 1
            total = 0.0
            ended = False
            while not ended and taken < 10_000:
                step = env.step(env.sample_random_action() if kind == "random" else next(texts))
                taken += 1
                assert low <= step.reward <= high + 1e-9
                assert not (step.terminated and step.truncated)
                total += step.reward
                ended = step.terminated or step.truncated
            assert least - 1e-9 <= total <= most + 1e-9


@pytest.mark.parametrize("id", SINGLE)
def test_an_answer_ends_the_episode_right_or_wrong(id: str) -> None:
    # Whoever is told "wrong" and may go on can try all answers in turn.
    if str(spec(id).entry).endswith("SlowReasoning"):
        pytest.skip("the same class on a costly generator")
    with make(id) as env:
        for answer in ("\\boxed{surely wrong}", "\\boxed{0}", "no answer at all"):
            env.reset(task=Task(id, 0))
            assert env.step(answer).terminated


ROW = {"question": "What is 6 * 7?", "answer": "42", "tests": {"inputs": ["1", "2", "3"], "outputs": ["1", "2", "3"]}}


@pytest.mark.parametrize("id", DATA)
async def test_a_final_answer_of_a_data_set_is_final(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("maths", "qa", "code"):
        monkeypatch.setattr(f"palestra.envs.{module}.draw_row", lambda *_: DrawnRow(ROW, {}))
    monkeypatch.setattr("palestra.envs.maths._shared_grader", lambda: nullcontext(_NeverRight()))
    known = spec(id)
    # Tools are lent by a wrapper around it, which passes an answer on; a box is not needed for what is not a program.
    env = resolve(str(known.entry))(**known.kwargs)
    for answer in ("\\boxed{41}", "\\boxed{submit}", "42 it is"):
        step = await _first_step(env, answer)
        trying = known.kwargs.get("feedback") and "submit" not in answer
        assert step.terminated is not bool(trying)
        # Whatever is said while one may go on comes from the tests that everybody can read.
        assert not trying or step.observation == "There is no ```python block in your message."
        assert not step.reward


class _NeverRight:
    """Stands for the workers that compare formulas, which take seconds to start."""

    async def equivalent(self, *_: str) -> bool:
        return False


async def _first_step(env: Env | AsyncEnv, answer: str) -> Step:
    if isinstance(env, Env):
        env.reset(seed=0)
        return env.step(answer)
    try:
        await env.reset(seed=0)
        return await env.step(answer)
    finally:
        await env.close()
