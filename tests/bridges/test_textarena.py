"""TextArena's games in Palestra: the same games as in TextArena, the same episodes again, two players."""

import random
import re
from typing import Any

import pytest

pytest.importorskip("textarena")

import textarena

from palestra import Env, StopReason, check_env, collect, make
from palestra.errors import UsageError
from tests.bridges.bridging import outcome

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

CROSSES = "textarena:TicTacToe-v0-raw?players=2"
MINES = "textarena:Minesweeper-v0-small-raw"


@pytest.mark.parametrize("name", ["Minesweeper-v0-small-raw", "Mastermind-v0-raw", "TowerOfHanoi-v0-raw", "TicTacToe-v0-raw"])
def test_the_same_seed_gives_the_game_of_textarena(name: str) -> None:
    players = 2 if name.startswith("Tic") else 1
    ours, other = make(f"textarena:{name}?players={players}"), make(MINES)
    for seed in range(5):
        expected, actions = theirs(name, players, seed)
        shown, info = ours.reset(seed=seed)
        found: list[Any] = [(shown, info.get("player"))]
        for action in actions:
            random.random()  # neither random numbers of others nor a second game change anything
            other.reset(seed=9)
            step = ours.step(action)
            found.append((step.observation, step.info.get("player")) if not step.terminated else step.reward)
        assert found == expected
    ours.close()
    other.close()


def theirs(name: str, players: int, seed: int) -> tuple[list[Any], list[str]]:
    random.seed(seed)
    env, chance = textarena.make(env_id=name), random.Random(seed)
    env.reset(num_players=players, seed=seed)
    seen: list[Any] = [observed(env, players)]
    actions: list[str] = []
    done = False
    while not done and len(actions) < 20:
        actions.append(chance.choice(["[0]", "[4]", "[reveal 1 1]", "[1 2 3 4]", "[0 2]", "[3 3]", "[8]", "[A C]"]))
        actor = env.state.current_player_id
        done, _ = env.step(action=actions[-1])
        seen.append(float(env.close()[0][actor]) if done else observed(env, players))
    return seen, actions


def observed(env: Any, players: int) -> tuple[str, str | None]:
    player, shown = env.get_observation()
    return "\n".join(message[1] for message in shown), f"player {player}" if players > 1 else None


def test_two_players_have_a_trajectory_each() -> None:
    played = collect(CROSSES, free_square, n=3)
    assert len(played) == 6
    for first, second in zip(played[::2], played[1::2], strict=True):
        assert {first.player, second.player} == {"player 0", "player 1"}
        assert first.stop is StopReason.TERMINATED
        assert (first.reward or 0.0) + (second.reward or 0.0) == 0.0
        assert "Current Board" in str(first.turns[0].observation)


def free_square(text: str) -> str:
    return str((re.findall(r"'(\[\d\])'", text.rsplit("Available Moves", 1)[-1]) or ["[0]"])[0])


def test_what_cannot_be_played_says_why() -> None:
    with pytest.raises(UsageError, match=r"TextArena \(tried with 0\.7\.4\) cannot make"):
        make("textarena:NoSuch-v0")


def test_random_actions_do_not_change_the_game() -> None:
    env = make("textarena:Mastermind-v0-raw?actions=[1 2 3 4]|[4 3 2 1]")
    env.reset(seed=1)
    assert isinstance(env.unwrapped, Env)
    assert {env.sample_random_action() for _ in range(20)} == {"[1 2 3 4]", "[4 3 2 1]"}
    env.close()


@pytest.mark.parametrize("id", [MINES, CROSSES])
def test_the_check_passes(id: str) -> None:
    assert outcome(check_env(id, n=5)) == {"skip": ["oracle-solves", "answer-hidden", "fork", "render", "quick"]}
