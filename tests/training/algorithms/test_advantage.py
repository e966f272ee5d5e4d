"""Every estimator against numbers worked out by hand; the arithmetic stands beside them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import UsageError
from palestra.recipes.algorithms import ADVANTAGE, AdvantageConfig
from palestra.training.algorithms.advantage import Credit, Credits, advantages, turn_returns, whiten
from palestra.training.algorithms.groups import GroupMember

METHODS: tuple[str, ...] = (
    "reinforce",
    "rebn",
    "rae",
    "grpo",
    "dr_grpo",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_group",
    "ppo_turn",
    "ppo_token",
    "gigpo",
)


def episode(
    *rewards: float,
    lengths: tuple[int, ...] | None = None,
    terminated: bool = True,
    values: tuple[float, ...] | None = None,
    final_value: float = 0.0,
    kl: tuple[float, ...] | None = None,
    anchors: tuple[str, ...] = (),
    player: str = "",
) -> GroupMember:
    return GroupMember(
        rewards=np.array(rewards, dtype=np.float64),
        lengths=np.array(lengths or (1,) * len(rewards), dtype=np.int64),
        terminated=terminated,
        anchors=anchors,
        role=("env", player),
        kl=None if kl is None else np.array(kl),
        values=None if values is None else np.array(values),
        final_value=final_value,
    )


def of(credits: Credits, group: int = 0, member: int = 0) -> Credit:
    credit = credits[group][member]
    assert credit is not None
    return credit


def close(got: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=0, atol=1e-6)


def test_returns_discount_once_a_turn() -> None:
    # G3 = 1;  G2 = 0 + 0.9·1 = 0.9;  G1 = 0.5 + 0.9·0.9 = 1.31
    close(turn_returns(np.array([0.5, 0.0, 1.0]), 0.9), [1.31, 0.9, 1.0])
    # with V = 2 after the cut: G3 = 1 + 0.9·2 = 2.8;  G2 = 2.52;  G1 = 0.5 + 2.268 = 2.768
    close(turn_returns(np.array([0.5, 0.0, 1.0]), 0.9, bootstrap=2.0), [2.768, 2.52, 2.8])


def test_reinforce_is_the_return_and_all_tokens_of_a_turn_share_it() -> None:
    credits = advantages([[episode(0.5, 0.0, 1.0, lengths=(2, 1, 3))]], AdvantageConfig("reinforce", discount=0.9))
    close(of(credits).advantages, [1.31, 0.9, 1.0])
    close(of(credits).per_token(), [1.31, 1.31, 0.9, 1.0, 1.0, 1.0])


def test_reinforce_bootstraps_the_cut_episode_only() -> None:
    cut, ended = episode(1.0, terminated=False, final_value=2.0), episode(1.0, terminated=True, final_value=2.0)
    credits = advantages([[cut], [ended]], AdvantageConfig("reinforce", discount=0.5))
    close(of(credits, 0).advantages, [2.0])  # 1 + 0.5·2
    close(of(credits, 1).advantages, [1.0])


def test_rebn_normalises_over_all_turns_of_all_episodes() -> None:
    # γ = 0.5: episode a (0, 1) → G = 0.5, 1;  episode b (0) → G = 0.
    # mean = 0.5;  biased variance = (0 + 0.25 + 0.25)/3 = 1/6;  std = 0.408248290
    # A = 0, 0.5/0.408248290 = 1.224744871, −1.224744871. Turn lengths do not matter.
    credits = advantages([[episode(0.0, 1.0, lengths=(7, 1))], [episode(0.0)]], AdvantageConfig("rebn", discount=0.5))
    close(of(credits, 0).advantages, [0.0, 1.2247448713915890])
    close(of(credits, 1).advantages, [-1.2247448713915890])


def test_rae_compares_with_the_other_episodes_of_the_same_player() -> None:
    first = [episode(reward, player="first") for reward in (1.0, 0.0, -1.0)]
    second = [episode(-1.0, 0.0, player="second"), episode(0.0, player="second")]
    credits = advantages([first[:2], second, first[2:]], AdvantageConfig("rae"))
    for (group, member), expected in {(0, 0): 1.5, (0, 1): 0.0, (2, 0): -1.5}.items():
        close(of(credits, group, member).advantages, [expected])
    close(of(credits, 1).advantages, [-1.0, -1.0])
    close(of(credits, 1, 1).advantages, [1.0])
    close(of(advantages([[episode(3.0)]], AdvantageConfig("rae"))).advantages, [0.0])


def test_grpo_standardizes_the_total_reward_inside_the_group() -> None:
    # R = 1, 0, 0, 2: mean 0.75; biased variance = (0.0625 + 0.5625 + 0.5625 + 1.5625)/4 = 0.6875; std = 0.829156198
    # A = 0.25/0.829157198 = 0.301511;  −0.75/… = −0.904533;  1.25/… = 1.507555   (ε = 1e-6 added to std)
    group = [episode(0.5, 0.5), episode(0.0), episode(0.0, 0.0), episode(2.0)]
    other = [episode(10.0), episode(20.0)]
    credits = advantages([group, other], AdvantageConfig("grpo", discount=0.1))
    std = 0.8291561975888500 + 1e-6
    close(of(credits, 0, 0).advantages, [0.25 / std] * 2)
    close(of(credits, 0, 1).advantages, [-0.75 / std])
    close(of(credits, 0, 2).advantages, [-0.75 / std] * 2)
    close(of(credits, 0, 3).advantages, [1.25 / std])
    close(of(credits, 1, 0).advantages, [-5.0 / (5.0 + 1e-6)])


@pytest.mark.parametrize(
    ("method", "expected"), [("dr_grpo", [0.25, -0.75, -0.75, 1.25]), ("rloo", [1 / 3, -1.0, -1.0, 5 / 3])]
)
def test_a_total_is_compared_with_the_mean_of_the_group_or_of_the_others(method: str, expected: list[float]) -> None:
    # R = 1, 0, 0, 2: mean 0.75; the others' means are 2/3, 1, 1, 1/3
    credits = advantages([[episode(1.0), episode(0.0), episode(0.0), episode(2.0)]], AdvantageConfig(method))
    close([of(credits, 0, m).advantages[0] for m in range(4)], expected)


def test_reinforce_pp_gives_each_token_its_return_less_the_kl_still_to_come() -> None:
    # One episode, turns of 2 and 1 tokens, r = (0, 1), γ = 0.5, β = 0.1, KL = (1, 2, 3).
    # token 3: 1 − 0.3 = 0.7;  token 2: −0.2 + 0.5·0.7 = 0.15 (γ where the turn ends);  token 1: −0.1 + 0.15 = 0.05
    # mean = 0.3;  biased variance = (0.0625 + 0.0225 + 0.16)/3 = 0.0816667;  std = 0.285773803
    credits = advantages(
        [[episode(0.0, 1.0, lengths=(2, 1), kl=(1.0, 2.0, 3.0))]],
        AdvantageConfig("reinforce_pp", discount=0.5, kl_in_reward=0.1),
    )
    std = 0.2857738033247041
    close(of(credits).per_token(), [-0.25 / std, -0.15 / std, 0.4 / std])


def test_reinforce_pp_whitens_by_token_over_the_whole_batch() -> None:
    # returns 1 (three tokens) and 0 (one token): mean 0.75, variance = 0.75·0.25 = 0.1875, std = 0.433012702
    credits = advantages([[episode(1.0, lengths=(3,))], [episode(0.0)]], AdvantageConfig("reinforce_pp"))
    close(of(credits, 0).per_token(), [0.25 / 0.4330127018922193] * 3)
    close(of(credits, 1).per_token(), [-0.75 / 0.4330127018922193])


def test_reinforce_pp_group_centres_then_whitens_by_token() -> None:
    # group R = 1, 0 → ±0.5, with 3 and 1 tokens: mean = (1.5 − 0.5)/4 = 0.25; variance = 0.25 − 0.0625 = 0.1875
    credits = advantages([[episode(1.0, lengths=(3,)), episode(0.0)]], AdvantageConfig("reinforce_pp_group"))
    close(of(credits, 0, 0).per_token(), [0.25 / 0.4330127018922193] * 3)
    close(of(credits, 0, 1).per_token(), [-0.75 / 0.4330127018922193])


@pytest.mark.parametrize(("terminated", "first", "second"), [(True, 0.475, 0.5), (False, 0.637, 0.86)])
def test_ppo_with_a_turn_critic(terminated: bool, first: float, second: float) -> None:
    # V before the turns: 0.2 and 0.5 (tokens 1 and 3); V after the end: 0.4; r = (0, 1), γ = 0.9, λ = 0.5.
    # ended: δ2 = 1 − 0.5 = 0.5;               δ1 = 0.9·0.5 − 0.2 = 0.25;  A1 = 0.25 + 0.45·0.5 = 0.475
    # cut:   δ2 = 1 + 0.9·0.4 − 0.5 = 0.86;                                A1 = 0.25 + 0.45·0.86 = 0.637
    # The second token's value (9.9) lies inside a turn and is never read.
    member = episode(0.0, 1.0, lengths=(2, 1), values=(0.2, 9.9, 0.5), terminated=terminated, final_value=0.4)
    credit = of(advantages([[member]], AdvantageConfig("ppo_turn", discount=0.9, gae_lambda=0.5, whiten=False)))
    close(credit.advantages, [first, second])
    assert credit.targets is not None
    close(credit.targets, [first + 0.2, np.nan, second + 0.5])


def test_ppo_with_a_token_critic_discounts_where_a_turn_ends() -> None:
    # V = 0.2, 0.3, 0.5; turns of 2 and 1 tokens; r = (0.1, 1) on tokens 2 and 3; γ = 0.9, λ = 0.5; ended.
    # δ3 = 1 − 0.5 = 0.5;  δ2 = 0.1 + 0.9·0.5 − 0.3 = 0.25;  δ1 = 0 + 1·0.3 − 0.2 = 0.1
    # A3 = 0.5;  A2 = 0.25 + 0.45·0.5 = 0.475;  A1 = 0.1 + 0.5·0.475 = 0.3375
    member = episode(0.1, 1.0, lengths=(2, 1), values=(0.2, 0.3, 0.5), final_value=7.0)
    credit = of(advantages([[member]], AdvantageConfig("ppo_token", discount=0.9, gae_lambda=0.5, whiten=False)))
    close(credit.per_token(), [0.3375, 0.475, 0.5])
    assert credit.targets is not None
    close(credit.targets, [0.5375, 0.775, 1.0])


def test_ppo_token_bootstraps_the_cut_and_pays_kl_by_token() -> None:
    # one turn of 2 tokens, r = 1, V = (0, 0), V after the cut 2, γ = 0.5, λ = 1, β = 0.1, KL = (1, 3)
    # A2 = 1 − 0.3 + 0.5·2 = 1.7;  A1 = −0.1 + 1.7 = 1.6
    member = episode(1.0, lengths=(2,), values=(0.0, 0.0), terminated=False, final_value=2.0, kl=(1.0, 3.0))
    config = AdvantageConfig("ppo_token", discount=0.5, gae_lambda=1.0, kl_in_reward=0.1, whiten=False)
    close(of(advantages([[member]], config)).per_token(), [1.6, 1.7])


@pytest.mark.parametrize("method", ["ppo_turn", "ppo_token"])
def test_a_cut_can_be_taken_for_an_end(method: str) -> None:
    # One token, r = 0.9, V = 0.5, V after the cut 2: A = 0.9 + 2 − 0.5 = 2.4 if the future counts, else 0.9 − 0.5 = 0.4.
    for bootstrap, expected in ((True, 2.4), (False, 0.4)):
        member = episode(0.9, lengths=(1,), values=(0.5,), terminated=False, final_value=2.0)
        config = AdvantageConfig(method, bootstrap=bootstrap, whiten=False)
        close(of(advantages([[member]], config)).advantages, [expected])


@pytest.mark.parametrize("method", ["ppo_turn", "ppo_token"])
def test_a_turn_without_tokens_hands_its_reward_to_the_turn_before(method: str) -> None:
    # turn 2 is silent: with γ = 0.5, V = 0 everywhere and λ = 1, turn 3 is worth 4 + 0.5·8 = 8 (cut, V = 8 after it),
    # turn 1 is worth 1 + 0.5·2 + 0.25·8 = 4.
    member = episode(1.0, 2.0, 4.0, lengths=(1, 0, 1), values=(0.0, 0.0), terminated=False, final_value=8.0)
    config = AdvantageConfig(method, discount=0.5, gae_lambda=1.0, whiten=False)
    close(of(advantages([[member]], config)).per_token(), [4.0, 8.0])


def test_gigpo_adds_the_comparison_among_turns_that_saw_the_same() -> None:
    # Group: a saw (s, x) and earned (0, 1); b saw (s, y) and earned (0, 0). γ = 0.5.
    # episode part: R = 1, 0 → ±0.5/(0.5 + ε) ≈ ±1.  Anchor s: G = 0.5 and 0 → ±0.25/(0.25 + ε) ≈ ±1; x and y are alone → 0.
    # A(a) = (1 + 0.5·1, 1);  A(b) = (−1 − 0.5·1, −1)
    group = [episode(0.0, 1.0, anchors=("s", "x")), episode(0.0, 0.0, anchors=("s", "y"))]
    credits = advantages([group], AdvantageConfig("gigpo", discount=0.5, anchor_weight=0.5, epsilon=0.0))
    close(of(credits, 0, 0).advantages, [1.5, 1.0])
    close(of(credits, 0, 1).advantages, [-1.5, -1.0])


def test_gigpo_never_compares_across_groups() -> None:
    groups = [[episode(1.0, anchors=("s",))], [episode(0.0, anchors=("s",))]]
    credits = advantages(groups, AdvantageConfig("gigpo"))
    close([of(credits, 0).advantages[0], of(credits, 1).advantages[0]], [0.0, 0.0])


@pytest.mark.parametrize("method", ["grpo", "dr_grpo", "rloo", "reinforce"])
def test_kl_in_the_reward_lowers_the_turn_that_paid_it(method: str) -> None:
    # a's reward falls by 0.1·(1 + 2 + 3) = 0.6, so a plain reward of 0.4 with no KL gives the same advantages
    paid = [episode(1.0, lengths=(3,), kl=(1.0, 2.0, 3.0)), episode(0.0, kl=(0.0,))]
    plain = [episode(0.4, lengths=(3,)), episode(0.0)]
    with_kl = advantages([paid], AdvantageConfig(method, kl_in_reward=0.1))
    without = advantages([plain], AdvantageConfig(method))
    close(of(with_kl, 0, 0).advantages, of(without, 0, 0).advantages)


@pytest.mark.parametrize("method", METHODS)
def test_a_failed_member_has_no_credit_and_changes_nothing(method: str) -> None:
    rng = np.random.default_rng(0)
    members = [random_episode(rng) for _ in range(6)]
    with_failures = advantages([[*members[:3], None], [None, *members[3:]]], AdvantageConfig(method))
    without = advantages([members[:3], members[3:]], AdvantageConfig(method))
    assert with_failures[0][3] is None
    assert with_failures[1][0] is None
    close(np.concatenate([of(with_failures, 0, m).per_token() for m in range(3)]), tokens(without[0]))
    close(np.concatenate([of(with_failures, 1, m + 1).per_token() for m in range(3)]), tokens(without[1]))


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_batch_is_no_error(method: str) -> None:
    assert advantages([], AdvantageConfig(method)) == []
    assert advantages([[None, None]], AdvantageConfig(method)) == [[None, None]]


def tokens(group: list[Credit | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([credit.per_token() for credit in group if credit is not None])


def random_episode(rng: np.random.Generator, *, scale: float = 1.0) -> GroupMember:
    turns = int(rng.integers(1, 5))
    lengths = rng.integers(0, 4, size=turns)
    lengths[0] = max(lengths[0], 1)
    total = int(lengths.sum())
    return GroupMember(
        rewards=scale * rng.normal(size=turns),
        lengths=lengths,
        terminated=bool(rng.integers(2)),
        anchors=tuple(rng.choice(["a", "b"], size=turns)),
        kl=rng.normal(size=total),
        values=scale * rng.normal(size=total),
        final_value=scale * float(rng.normal()),
    )


@given(seed=st.integers(0, 2**32), method=st.sampled_from(METHODS), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_advantages_are_finite_aligned_and_centered_where_they_should_be(seed: int, method: str, scale: float) -> None:
    rng = np.random.default_rng(seed)
    groups = [[random_episode(rng, scale=scale) for _ in range(3)] for _ in range(2)]
    credits = advantages(groups, AdvantageConfig(method, discount=0.9, kl_in_reward=0.0))
    for group, members in zip(credits, groups, strict=True):
        for credit, member in zip(group, members, strict=True):
            assert credit is not None
            assert len(credit.per_token()) == member.tokens
            assert np.isfinite(credit.per_token()).all()
    if method in ("reinforce_pp", "reinforce_pp_group", "ppo_turn", "ppo_token"):
        every = np.concatenate([tokens(group) for group in credits])
        assert abs(every.mean()) < 1e-8
        assert abs(every.std() - 1) < 1e-6
    if method in ("grpo", "dr_grpo", "rloo"):
        for g in range(2):
            assert abs(sum(of(credits, g, m).advantages[0] for m in range(3))) < 1e-6 * max(scale, 1)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(-1e3, 1e3))
def test_whiten_ignores_a_shift_and_never_divides_by_rounding(values: list[float], constant: float) -> None:
    assert (whiten(np.full(7, constant)) == 0).all()
    white = whiten(np.array(values))
    assert np.isfinite(white).all()
    assert abs(white.mean()) < 1e-6


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (AdvantageConfig("ppo_turn"), "critic"),
        (AdvantageConfig("grpo", kl_in_reward=0.1), "reference"),
        (AdvantageConfig("gigpo"), "anchor"),
    ],
)
def test_missing_measurements_are_named(config: AdvantageConfig, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        advantages([[episode(1.0)]], config)


def test_what_a_method_of_ones_own_returns_is_checked_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def answered(value: object) -> object:
        monkeypatch.setitem(ADVANTAGE.builtins, "reinforce", lambda groups, config: value)
        return advantages([[member]], AdvantageConfig("reinforce"))

    member = GroupMember(np.array([0.0, 1.0]), np.array([2, 3]), True)
    right = Credit(member, np.array([1.0, 2.0]))
    assert answered([[right]]) == [[right]]
    assert answered([(replace(right, advantages=np.array([1, 2])),)]) != [[right]]
    wrong: list[object] = [
        None,
        1.0,
        [1.0],
        np.ones((1, 1)),
        {0: [right]},
        [[1.0]],
        [[None]],
        [[np.ones(2)]],
        [[]],
        [[right], [right]],
    ]
    credits = [
        replace(right, advantages=1.0),  # type: ignore[arg-type]
        replace(right, advantages=np.ones(3)),
        replace(right, advantages=np.ones((2, 1))),
        replace(right, advantages=np.array([1.0, np.nan])),
        replace(right, advantages=np.array(["a", "b"])),
        replace(right, per="token"),
        replace(right, per="episode"),  # type: ignore[arg-type]
        replace(right, targets=np.ones(2)),
    ]
    for value in [*wrong, *([[credit]] for credit in credits)]:
        with pytest.raises(UsageError, match=r"^advantage\.method (must return|returned)"):
            answered(value)
