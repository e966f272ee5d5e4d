"""What holds for every built-in environment: the contract of ``palestra check``, any text as an action, one answer only.

The gate takes one id of each family, and one of those that start boxes; ``full`` takes every id and level. What is special to
a family, such as its rules and its grading, is tested in its folder, and so are the worlds with Java or a browser.
"""

import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.suite.many_actions import Player, many_actions, random_player
from tests.suite.same_everywhere import BOTH, EVERY_CASE, different_hashes
from tests.suite.tool_worlds import hostile_action

from palestra.checking import check_env
from palestra.checking.hostile import GROWING, SHORT
from palestra.checking.report import Status
from palestra.core import AsyncEnv, Env, Step
from palestra.errors import Unsupported
from palestra.foundation.references import resolve
from palestra.registry import EnvSpec, list_envs, make, spec
from palestra.suite.data.drawing import DrawnRow
from palestra.trajectory import Task

SMALL_WIKI = Path(__file__).parent / "games" / "small_wiki.jsonl"

IN_OTHER_TESTS = ("eval", "qa", "logic", "science", "web")
"""Data sets have to be downloaded: a row of one's own stands for them below. With Java or a browser a check takes minutes."""
ONE_FAMILY = ("rg", "babyai", "house", "text")
"""Namespaces whose ids are one environment with other parameters."""
CHOSEN = {"house:any-hard", "tools:desk-library-hard", "craft:minecraft-depth2"}
"""Ids that the gate takes; of the other families it takes the last id, and of a game the level that draws the others."""
WORLDS = ("text:", "tools:dojo")
BOXED = ("terminal:", "code:")
"""A check with a box takes a minute or more: the gate takes one, and ``.ci/run --all`` one of each family."""
LEAKY = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The programs that rg:codeio runs leave event loops open; whatever leaks elsewhere is ours, and fails."""
SECONDS = 3.0
"""What a check may take in the mean."""


def is_playable(known: EnvSpec) -> bool:
    """Whether ``known`` needs no file of the user's; an id without a level means one of the others."""
    if known.namespace in IN_OTHER_TESTS or (known.level and not known.id.endswith(f"-{known.level}")):
        return False
    if known.namespace in ("math", "code"):
        return known.id in ("math:Sums", "code:HumanEval", "code:HumanEval-feedback")
    # AgentGym's variants keep its defects, and the actions and views of BabyAI are another form of the same levels.
    return known.family != "alfworld" and not known.id.endswith(("agentgym", "-primitive", "-vision"))


def family(id: str) -> str:
    namespace = id.partition(":")[0]
    return namespace if namespace in ONE_FAMILY else id.partition("-")[0]


PLAYABLE = [known.id for known in list_envs("*") if is_playable(known)]
SAMPLE = {family(id): id for id in sorted(PLAYABLE, key=lambda name: name in CHOSEN or name.endswith("-random"))}
"""An id of each family."""
GATE = ["terminal:text-v0-medium", *(id for id in SAMPLE.values() if not id.startswith(BOXED))]
IDS = [id for id in PLAYABLE if id in SAMPLE.values() or not id.startswith(WORLDS)]
GAMES = [id for id in IDS if id.startswith("game:")]
SINGLE = [id for id in IDS if id.startswith(("rg:", "math:"))]
DATA = [known.id for known in list_envs("*") if known.namespace in ("math", "code", "logic", "qa", "eval")]


def parameter(id: str) -> Any:
    marks = [pytest.mark.gate] * (id in GATE) + [pytest.mark.worlds] * id.startswith(WORLDS)
    marks += [pytest.mark.full] * (id not in SAMPLE.values())
    return pytest.param(id, marks=[*marks, LEAKY] if id == "rg:codeio" else marks)


@pytest.fixture(autouse=True)
def own_files(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A small corpus, and a home for indexes and games that is not the user's."""
    monkeypatch.setenv("PALESTRA_WIKI_CORPUS", str(SMALL_WIKI))
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.mark.slow
@pytest.mark.parametrize("id", [parameter(id) for id in IDS])
def test_it_passes_palestra_check(id: str) -> None:
    # The generators are looked at in other processes below, all at once: each would import the library for seconds.
    report = check_env(id, n=60, skip=["same-elsewhere"] if id in SINGLE else [], seconds=SECONDS)
    assert [finding for finding in report.findings if finding.status is Status.FAIL] == []


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("id", [id for id in GATE if not id.startswith(WORLDS)])
def test_a_fork_draws_the_random_actions_of_its_original_and_leaves_it_its_own(id: str) -> None:
    with make(id) as env:
        env.reset(task=Task(id, 0))
        try:
            env.sample_random_action()
            twin = env.fork()
        except Unsupported as missing:
            pytest.skip(str(missing))
        with twin:
            drawn = [twin.sample_random_action() for _ in range(9)]
        assert [env.sample_random_action() for _ in range(9)] == drawn


@pytest.mark.gate
@pytest.mark.slow
def test_every_generator_gives_the_same_episodes_in_other_processes() -> None:
    assert different_hashes(SINGLE, seeds=1, wandering=BOTH, cases=(EVERY_CASE[0], EVERY_CASE[3])) == 1


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_any_number_of_workers_and_any_hash_seed_give_the_same_episodes() -> None:
    assert different_hashes([*GAMES, *SINGLE], seeds=3, wandering=BOTH) == 1


class Hostile:
    """A player who sends hostile calls of the tools, or the checker's hostile texts and texts made from pieces of moves."""

    def __init__(self) -> None:
        self.rng = random.Random(0)
        self.generator = np.random.default_rng(7)
        self.texts = [*SHORT.values(), *(grow(size) for grow in GROWING.values() for size in (16, 300))]
        self.pieces = [*"}{10 ,-A٣\ud800", "\\boxed{", "9" * 20, "reveal", "flag", "up", "LEFT", "Action: ", "go to "]
        self.pieces += ["<tool_call>", "</tool_call>", '{"name": "', '"arguments": {}}']

    def __call__(self, env: Any, info: dict[str, Any]) -> str:
        if "tools" in info:
            return hostile_action({schema["name"]: schema for schema in info["tools"]}, self.generator)
        drawn = "".join(self.rng.choices([*self.pieces, *self.texts[:8]], k=self.rng.randrange(12)))
        return self.rng.choice([self.rng.choice(self.texts), drawn, f"\\boxed{{{drawn}}}"])


@pytest.mark.slow
@pytest.mark.parametrize("id", [parameter(id) for id in IDS if not id.startswith(BOXED)])
def test_five_hundred_hostile_actions_raise_nothing_and_keep_the_declared_rewards(id: str) -> None:
    assert many_actions(id, 500, Hostile(), tasks=5).faults == []


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("player", [random_player, Hostile()], ids=["random", "hostile"])
@pytest.mark.parametrize("id", GAMES)
def test_ten_thousand_actions_raise_nothing_and_keep_the_declared_rewards(id: str, player: Player) -> None:
    assert many_actions(id, 10_000, player).faults == []


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
        monkeypatch.setattr(f"palestra.suite.{module}.draw_row", lambda *_: DrawnRow(ROW, {}))
    monkeypatch.setattr("palestra.suite.maths._shared_grader", lambda: nullcontext(_NeverRight()))
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
