"""What every game promises, checked on every registered id and level."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.core import Env, Step
from palestra.envs.games.game import FORMAT_ERROR, Game
from palestra.registry import list_envs, spec
from palestra.trajectory import StopReason, Task

IDS = [known.id for known in list_envs("game:*")]
PLAYED = [id for id in IDS if not spec(id).level or id.endswith(f"-{spec(id).level}")]

SMALL_WIKI = Path(__file__).parent / "small_wiki.jsonl"

ORACLE_SUCCESS = {
    "game:Hangman-v0-easy": 0.6,
    "game:Hangman-v0-random": 0.8,
    "game:Blackjack-v0-easy": 0.2,
    "game:Blackjack-v0-hard": 0.2,
    "game:ConnectFour-v0-hard": 0.4,
    "game:ConnectFour-v0-random": 0.6,
    "game:FrozenLake-v0-slippery": 0.4,
    "game:Game2048-v0-hard": 0.0,
    "game:Game2048-v0-extreme-hard": 0.0,
    "game:TicTacToe-v0-easy": 0.8,
    "game:TicTacToe-v0-hard": 0.1,
    "game:TicTacToe-v0-perfect": 0.0,
    "game:TicTacToe-v0-random": 0.2,
}
"""Where the oracle is strong but not perfect: the success rate it must at least have."""

HOSTILE = [
    "",
    " ",
    "\x00",
    "\\boxed{}",
    "\\boxed{\x00}",
    "\\boxed{\u202e1 1 1\u202c}",
    "\\boxed{\ud800}",
    "\\boxed{\ud800 \udfff}",
    "\\boxed{²}",
    "\\boxed{٣}",
    "\\boxed{٣ ٣ ٣}",
    "\\boxed{³ ¹ ²}",
    "\\boxed{1 1 ٣}",
    "\\boxed{Ⅷ}",
    "\\boxed{" + "9" * 5000 + "}",
    "\\boxed{" + "9" * 5000 + " 1 1}",
    "\\boxed{" + "1 " * 5000 + "}",
    "\\boxed{" + "a" * 1_000_000 + "}",
    "\\boxed{" * 100_000,
    "\\boxed" + "{" * 100_000 + "}" * 100_000,
    "}" * 100_000,
    "a" * 1_000_000,
    "\\boxed{-1}",
    "\\boxed{1e3}",
    "\\boxed{1_0}",
    "\\boxed{nan}",
    "\\boxed{0}",
    "\\boxed{0 0 0}",
    "\\boxed{99 99 99}",
    "\\boxed{999999999999999999}",
    "\\boxed{ſ}",
    "\\boxed{İ}",
    "\\boxed{ß}",
    "\\boxed{A A}",
    "\\boxed{__class__}",
    "\\boxed{%s %d {0}}",
]


def built(id: str) -> Game[object]:
    known = spec(id)
    corpus = {"corpus": str(SMALL_WIKI)} if known.family == "WikiGame" else {}
    game = known.factory(corpus)(**known.kwargs, **corpus)
    assert isinstance(game, Game)
    return game


def steps(game: Env, choose: Callable[[], str]) -> Iterator[Step]:
    """The episode under ``choose``, held to the contract at every step."""
    low, high = game.reward_range
    while True:
        step = game.step(choose())
        assert low <= step.reward <= high + 1e-9
        assert not (step.terminated and step.truncated)
        assert isinstance(step.observation, str)
        yield step
        if step.terminated or step.truncated:
            assert isinstance(step.info["success"], bool)
            assert (step.info.get("stop_reason") == StopReason.TURN_LIMIT) == step.truncated
            return
        assert "success" not in step.info


def transcript(game: Env, seed: int, *, oracle: bool) -> str:
    task = Task("game", seed)
    observation, _ = game.reset(task=task)
    told = [str(observation)]
    actions: list[str] = []

    def choose() -> str:
        actions.append(game.oracle() if oracle else game.sample_random_action())
        return actions[-1]

    told += [repr(step[:4]) for step in steps(game, choose)]
    return "\n".join(told + actions)


@pytest.mark.parametrize("id", PLAYED)
def test_the_oracle_solves_every_task_for_a_total_of_one(id: str) -> None:
    game, solved, tasks = built(id), 0, 15
    for seed in range(tasks):
        game.reset(seed=seed)
        played = list(steps(game, game.oracle))
        solved += played[-1].info["success"]
        if played[-1].info["success"]:
            assert sum(step.reward for step in played) == pytest.approx(1.0)
            assert played[-1].terminated
    assert solved / tasks >= ORACLE_SUCCESS.get(id, 1.0)


@pytest.mark.parametrize("id", PLAYED)
def test_random_actions_are_well_formed_and_end_within_the_limit(id: str) -> None:
    game = built(id)
    for seed in range(10):
        _, info = game.reset(seed=seed)
        game.seed_actions(seed)
        played = list(steps(game, game.sample_random_action))
        assert not any(step.info.get("format_error") for step in played)
        assert len(played) <= info["max_turns"]
        assert sum(step.reward for step in played) <= 1.0 + 1e-9
        if played[-1].truncated:
            assert len(played) == info["max_turns"]


@pytest.mark.parametrize("id", PLAYED)
def test_the_same_task_is_the_same_episode_and_another_seed_is_not(id: str) -> None:
    game, other = built(id), built(id)
    first = [transcript(game, seed, oracle=False) for seed in range(6)]
    assert [transcript(other, seed, oracle=False) for seed in range(6)] == first
    assert len(set(first)) > 1


@pytest.mark.parametrize("id", PLAYED)
def test_sampling_actions_does_not_change_the_game(id: str) -> None:
    quiet, noisy = built(id), built(id)
    for game in (quiet, noisy):
        game.reset(seed=3)
    for _ in range(5):
        noisy.sample_random_action()
        noisy.oracle()
        action = quiet.oracle()
        assert noisy.oracle() == action
        step = quiet.step(action)
        assert noisy.step(action) == step
        if step.terminated or step.truncated:
            break


@pytest.mark.parametrize("id", PLAYED)
def test_a_fork_goes_its_own_way(id: str) -> None:
    game = built(id)
    game.reset(seed=5)
    twin, reference = game.fork(), game.fork()
    for _ in steps(twin, twin.sample_random_action):
        pass
    # Playing the twin to its end left the original where it was.
    assert game.oracle() == reference.oracle()
    assert [tuple(step) for step in steps(game, game.oracle)] == [tuple(step) for step in steps(reference, reference.oracle)]


@pytest.mark.parametrize("id", PLAYED)
def test_hostile_actions_never_raise(id: str) -> None:
    game = built(id)
    low, high = game.reward_range
    for action in HOSTILE:
        game.reset(seed=1)
        step = game.step(action)
        assert low <= step.reward <= high
        assert len(str(step.observation)) < 5000
        str(step.observation).encode()
        if "\\boxed{" not in action:
            assert step[1:4] == (FORMAT_ERROR, True, False)


@pytest.mark.parametrize("id", PLAYED)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_text_is_an_action(id: str, data: st.DataObject) -> None:
    game = built(id)
    game.reset(seed=0)
    words = st.lists(
        st.sampled_from(["1", "2", "3", "0", "A", "b", "up", "left", "reveal", "flag", "row", ",", "->", "٣", "{", "}"])
    )
    answer = data.draw(st.one_of(st.text(max_size=20), words.map(" ".join)))
    low, high = game.reward_range
    step = game.step(f"\\boxed{{{answer}}}")
    assert low <= step.reward <= high
    str(step.observation).encode()


@pytest.mark.parametrize("id", PLAYED)
def test_the_last_boxed_move_counts(id: str) -> None:
    game, plain = built(id), built(id)
    game.reset(seed=2)
    plain.reset(seed=2)
    action = plain.oracle()
    assert game.step(f"First I thought \\boxed{{nonsense}}, but now {action} it is.") == plain.step(action)


@pytest.mark.parametrize("id", PLAYED)
def test_the_registered_turn_limit_is_the_real_one(id: str) -> None:
    game = built(id)
    game.reset(seed=0)
    assert spec(id).max_turns in (None, game.max_turns)
    assert spec(id).max_turns is not None or spec(id).level == "random"


@pytest.mark.parametrize("id", [id for id in IDS if id not in PLAYED])
def test_an_id_without_a_level_means_hard(id: str) -> None:
    assert spec(id).level == "hard"
    assert spec(id).kwargs == spec(f"{id}-hard").kwargs


DIGEST = """
from tests.envs.games.test_every_game import PLAYED, built, digest
for id in PLAYED:
    print(id, digest(id))
"""


def digest(id: str) -> str:
    game = built(id)
    whole = "".join(transcript(game, 0, oracle=oracle) for oracle in (False, True))
    return hashlib.sha256(whole.encode()).hexdigest()


@pytest.mark.gate
@pytest.mark.parametrize("hash_seed", ["1", "4242"])
@pytest.mark.slow
def test_another_process_with_another_hash_seed_plays_the_same_episodes(hash_seed: str) -> None:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [f"{id} {digest(id)}" for id in PLAYED]
