"""Gymnasium's environments in ours: the same steps as in Gymnasium, the same episodes again, and mistakes answered."""

import re
from typing import Any

import pytest

pytest.importorskip("gymnasium")

import gymnasium

from palestra import check_env, make
from palestra.bridges.gymnasium import without_colors
from palestra.errors import UsageError
from tests.bridges.bridging import outcome

LAKE = "gymnasium:FrozenLake-v1?render_mode=ansi&is_slippery=false&names=left,down,right,up&solved_at=1"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("FrozenLake-v1", {"render_mode": "ansi"}),
        ("Taxi-v4", {"render_mode": "ansi"}),
        ("CliffWalking-v1", {"render_mode": "ansi", "is_slippery": True, "max_episode_steps": 200}),
        ("Blackjack-v1", {"natural": True}),
        ("CartPole-v1", {}),
        ("Acrobot-v1", {}),
        ("MountainCar-v0", {"max_episode_steps": 50}),
    ],
)
def test_the_same_seed_gives_the_episode_of_gymnasium(name: str, settings: dict[str, Any]) -> None:
    options = "&".join(f"{key}={str(value).lower()}" for key, value in settings.items())
    ours, theirs = make(f"gymnasium:{name}?{options}"), gymnasium.make(name, **settings)
    taken = 0
    for seed in range(5):
        shown, _ = ours.reset(seed=seed)
        seen, _ = theirs.reset(seed=seed)
        assert str(shown).startswith(text(theirs, seen))
        over = False
        while not over:
            action = ours.sample_random_action()
            step = ours.step(f"I take {action}.")
            seen, reward, terminated, truncated, _ = theirs.step(int(re.findall(r"\d+", action)[0]))
            assert (step.observation, step.reward, step.terminated) == (text(theirs, seen), reward, terminated)
            over = terminated or truncated
            assert step.truncated == (truncated and not terminated)
            taken += 1
    assert taken >= 5
    ours.close()
    theirs.close()


def text(theirs: Any, seen: Any) -> str:
    if theirs.render_mode == "ansi":
        return without_colors(theirs.render()).rstrip("\n")
    if isinstance(seen, tuple):
        return str(tuple(int(one) for one in seen))
    return str(seen.tolist())


def test_colors_become_words() -> None:
    env = make(LAKE)
    observation, _ = env.reset(seed=0)
    assert "<red>S</red>FFF" in str(observation)
    assert "\x1b" not in str(observation)
    env.close()
    assert without_colors("\x1b[34;1mY\x1b[0m \x1b[43mX\x1b[0m\x1b[2J") == "<blue>Y</blue> <yellow>X</yellow>"


def test_success_is_only_stated_if_it_was_defined() -> None:
    path = ["down", "down", "right", "right", "down", "right"]
    for id, expected in ((LAKE, {"success": True}), (LAKE.replace("&solved_at=1", ""), {})):
        env = make(id)
        env.reset(seed=3)
        for name in path:
            step = env.step(f"\\boxed{{{name}}}")
        assert (step.terminated, step.reward, step.info) == (True, 1.0, expected)
        env.close()


def test_other_texts_are_answered_and_take_a_turn() -> None:
    env = make("gymnasium:Blackjack-v1?max_episode_steps=5")
    observation, _ = env.reset(seed=1)
    assert "\\boxed{0}, \\boxed{1}" in str(observation)
    for action in ("", "hit", "\\boxed{7}", "\\boxed{"):
        assert "not an action" in str(env.step(action).observation)
    assert env.step("nothing").truncated
    env.close()


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("gymnasium:NoSuchLake-v1", "cannot make"),
        ("gymnasium:FrozenLake-v1?depth=3", "cannot make .*depth"),
        ("gymnasium:no_such_module:Lake-v1", "cannot make"),
        ("gymnasium:Pendulum-v1", "only Discrete ones"),
        ("gymnasium:FrozenLake-v1?names=left,right", "4 actions, but names has 2"),
        ("gymnasium:FrozenLake-v1?names=left,right,left,up", "4 actions, but names has 3"),
    ],
)
def test_what_cannot_be_played_says_why(id: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(id)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "rest"),
    [
        (LAKE, {"skip": ["ends", "oracle-solves", "answer-hidden", "fork", "render"]}),
        # Garbage takes a turn and leaves the pole alone: such an episode ends at the turn limit of Gymnasium.
        ("gymnasium:CartPole-v1?floor=9.5", {"warn": ["ends"], "skip": ["oracle-solves", "answer-hidden", "fork", "render"]}),
    ],
)
def test_the_check_passes_and_replays_are_equal(id: str, rest: dict[str, list[str]]) -> None:
    assert outcome(check_env(id, n=5)) == rest
