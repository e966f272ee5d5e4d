from collections.abc import Iterator
from html.parser import HTMLParser

import msgspec
import pytest
from tests.evaluation.present import partial_score, present

from palestra.errors import Boundary, UsageError
from palestra.evaluation.asked import Asked
from palestra.evaluation.comparison import compare
from palestra.evaluation.leaderboard import entry_of
from palestra.evaluation.rendering import comparison_text, report_html, report_markdown
from palestra.evaluation.report import EpisodeScore, episode_of, missing_scores, report_on, task_scores
from palestra.foundation.encoding import encode_json, floats, ints
from palestra.registry import family_of
from palestra.trajectory import Completion, Failure, Phase, Segment, Span, StopReason, Task, Trajectory, Turn, Usage

EASY, HARD, OTHER = "game:Guess-v0-easy", "game:Guess-v0-hard", "rg:letter_counting"


def played(
    env: str, seed: int, reward: float, *, member: int = 0, success: bool | None = None, policy: str = "p"
) -> Trajectory:
    info = {} if success is None else {"success": success}
    turn = Turn("o", Completion("a", usage=Usage(10, 4, 0.5)), reward, info, act_seconds=2.0)
    return Trajectory(Task(env, seed), StopReason.TERMINATED, (turn,), policy=policy, member=member, seconds=3.0)


def failed(env: str, seed: int, boundary: Boundary = Boundary.INFRASTRUCTURE) -> Trajectory:
    failure = Failure(boundary, Phase.ACT, "OSError", "gone", attempt=2)
    half = Turn("o", Completion("a", usage=Usage(10, 4, 0.5)), 1.0, {"success": True})
    return Trajectory(Task(env, seed), StopReason.ERROR, (half,), failures=(failure,), policy="p", attempt=2)


def test_failures_are_missing_coverage_and_never_zeros() -> None:
    suite = report_on([played(EASY, 0, 1.0, success=True), failed(EASY, 1), failed(EASY, 2, Boundary.GRADER)]).suite
    assert (suite.score, suite.success) == (None, None), "the mean of a part is not that of all"
    assert (partial_score(suite).mean, present(present(suite.partial).success).mean) == (1.0, 1.0)
    assert (suite.issued, suite.scored, suite.coverage) == (3, 1, 1 / 3)
    assert suite.failures == {"grader": 1, "infrastructure": 1}
    assert suite.retried == 4


def test_the_column_of_a_game_for_two_misses_what_each_player_misses() -> None:
    def ended(seed: int, group: int, player: str, reward: float) -> Trajectory:
        return msgspec.structs.replace(played("game:Two", seed, reward), group=group, player=player)

    asked = Asked([Task("game:Two", 0), Task("game:Two", 1), Task(EASY, 0)], ranges={"game:Two": (0.0, 1.0), EASY: (0.0, 1.0)})
    episodes = [ended(0, 0, "white", 1.0), ended(0, 0, "black", 0.0), ended(1, 1, "white", 1.0)]
    report = report_on(episodes, asked=asked, groups=["Games/One", "Games/Two", "Games/Two"])
    columns = {section.name: section for section in report.groups}
    counts = {name: (section.issued, section.scored) for name, section in columns.items()}
    assert counts == {"Games": (5, 3), "Games/One": (2, 2), "Games/Two": (3, 1)}
    assert columns["Games/One"].score is not None
    score = partial_score(columns["Games/Two"])
    assert (score.mean, score.episodes, score.missing) == (1.0, 1, 2)
    assert score.low is not None, "the bounds of the missing ones are known"


class Counted(list[EpisodeScore]):
    passes = 0

    def __iter__(self) -> Iterator[EpisodeScore]:
        self.passes += 1
        return super().__iter__()


def test_the_missing_episodes_of_many_environments_take_few_passes_over_the_episodes() -> None:
    envs = [f"game:G{number}" for number in range(50)]
    episodes = Counted(episode_of(played(env, 0, 1.0)) for env in envs)
    asked = Asked([Task(env, seed) for env in envs for seed in (0, 1)])
    assert {score.path[-1] for score in missing_scores(episodes, asked)} == set(envs)
    assert episodes.passes < 10


def test_the_fault_is_the_first_failure_of_the_last_attempt() -> None:
    failures = (
        Failure(Boundary.INFRASTRUCTURE, Phase.ACT, "OSError", "retried"),
        Failure(Boundary.GRADER, Phase.STEP, "ValueError", "this ended it", attempt=1),
        Failure(Boundary.ENV, Phase.CLOSE, "OSError", "and this came of it", attempt=1),
    )
    ended = Trajectory(Task(EASY), StopReason.ERROR, failures=failures, attempt=1)
    assert report_on([ended, played(EASY, 1, 1.0)]).suite.failures == {"grader": 1}


def test_the_order_in_which_episodes_end_leaves_no_trace() -> None:
    runs = [played(EASY, seed, seed / 7, member=m) for seed in range(7) for m in range(3)] + [failed(OTHER, 3)]
    assert encode_json(report_on(runs)) == encode_json(report_on(runs[::-1]))


def test_episodes_that_were_never_played_are_missing_too() -> None:
    tasks = [Task(EASY, 0), Task(EASY, 1), *(Task(OTHER, seed) for seed in range(3))]
    report = report_on([played(EASY, 0, 1.0)], asked=Asked(tasks))
    assert report.suite.failures == {"not played": 4}
    assert [section.name for section in report.envs] == [EASY, OTHER]
    assert report.envs[1].score is None


def test_nothing_at_all_is_no_score() -> None:
    report = report_on([], asked=Asked([Task(EASY, seed) for seed in range(5)]))
    assert report.suite.score is None
    assert "none of 5 episodes finished" in report_markdown(report)
    assert "no score" in report_html(report)


def test_the_suite_is_the_mean_of_its_families() -> None:
    runs = [played(EASY, seed, 1.0) for seed in range(9)] + [played(HARD, seed, 0.0) for seed in range(3)]
    runs += [played(OTHER, seed, 0.0) for seed in range(5)]
    report = report_on(runs)
    scores = {section.name: section.score.mean for section in (report.suite, *report.families, *report.envs) if section.score}
    assert scores == pytest.approx({"all": 0.25, "game:Guess": 0.5, OTHER: 0.0, EASY: 1.0, HARD: 0.0})


@pytest.mark.parametrize(
    ("env", "family"), [(EASY, "game:Guess"), ("game:Guess-v12", "game:Guess"), (OTHER, OTHER), ("math:GSM8K", "math:GSM8K")]
)
def test_families(env: str, family: str) -> None:
    assert family_of(env) == family


def test_repeats_give_pass_at_k() -> None:
    runs = [played(EASY, 0, hit, member=m, success=bool(hit)) for m, hit in enumerate([1.0, 0.0, 0.0, 0.0])]
    runs += [played(EASY, 1, 0.0, member=m, success=False) for m in range(4)]
    suite = report_on(runs).suite
    assert {k: e.mean for k, e in suite.pass_at.items()} == pytest.approx({"2": 0.25, "4": 0.5})
    assert {k: e.mean for k, e in suite.pass_all.items()} == {"2": 0.0, "4": 0.0}
    assert (present(suite.score).tasks, present(suite.score).episodes) == (2, 8)


def test_amounts() -> None:
    suite = report_on([played(EASY, 0, 1.0), failed(EASY, 1)]).suite
    assert (present(suite.tokens).total, present(suite.prompt_tokens).total, present(suite.act_seconds).mean) == (4, 10, 2.0)
    assert present(suite.dollars).total == 1.0, "the failed episode was paid for too"
    assert suite.stops == {"terminated": 1, "error": 1}


@pytest.mark.parametrize(("reported", "counted"), [(0, 6), (3, 6), (99, 99)])
def test_all_recorded_tokens_count_and_those_that_a_strategy_sampled_and_discarded(reported: int, counted: int) -> None:
    segment = Segment(ints(range(9)), (Span(2, 8, 0),), floats([0.0] * 6))
    turn = Turn("o", Completion("a", usage=Usage(1, reported)))
    assert episode_of(Trajectory(Task(EASY), StopReason.TERMINATED, (turn,), (segment,))).tokens == counted


def test_rewards_beyond_one_widen_the_bounds() -> None:
    score = present(report_on([played(EASY, seed, reward) for seed, reward in enumerate([-0.1, 1.5, 1.0])]).suite.score)
    assert -0.1 <= score.low < score.mean < score.high <= 1.5


def test_a_report_is_of_one_policy_and_of_what_was_asked_for() -> None:
    with pytest.raises(UsageError, match="one policy"):
        report_on([played(EASY, 0, 1.0, policy="a"), played(EASY, 1, 1.0, policy="b")])
    with pytest.raises(UsageError, match="2 episodes but 1 were asked for"):
        report_on([played(EASY, 0, 1.0), played(EASY, 1, 1.0)], asked=Asked([Task(EASY, 0)]))


HOSTILE = "<script>alert(1)</script>|\n# heading\u202e\x1b[31m"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)


def test_a_hostile_name_is_shown_and_not_obeyed() -> None:
    report = report_on([played("x:y", 0, 1.0, policy=HOSTILE)], about={HOSTILE: HOSTILE})
    tags = Tags()
    tags.feed(report_html(report))
    assert "script" not in tags.found
    assert {"svg", "table"} <= tags.found
    markdown = report_markdown(report)
    assert not any(text in markdown for text in ("<script>", "\n# heading", "\u202e"))
    assert "\x1b" not in markdown + report_html(report)


def test_markdown_says_score_interval_and_what_is_missing() -> None:
    text = report_markdown(report_on([*(played(EASY, n, n % 2) for n in range(10)), played(HARD, 0, 1.0), failed(OTHER, 0)]))
    assert text.startswith("# p: incomplete, 11 of 12 episodes asked for have a score\n")
    assert "| all | 0.75 of 11 of 12 (all: unknown) |" in text
    assert "game:Guess-v0-easy | 0.50 [" in text, "nothing is missing of this one"
    assert "1 of 12 episodes have no score and are in no mean: 1 because of the infrastructure." in text
    assert "91.6 %" in text


def test_the_score_of_a_privileged_policy_is_labelled() -> None:
    plain = report_on([played(EASY, 0, 1.0)])
    baseline = report_on([msgspec.structs.replace(played(EASY, 0, 1.0, policy="oracle"), privileged=True)])
    assert "privileged" not in report_markdown(plain)
    assert report_markdown(baseline).startswith("# oracle (privileged)\n")
    assert "it can ask the environment for its answers" in report_markdown(baseline)
    assert "<h1>oracle (privileged)</h1>" in report_html(baseline)
    chance = report_on([msgspec.structs.replace(played(EASY, 0, 1.0, policy="random"), privileged=True)])
    assert "privileged: it draws from the environment's own actions." in report_markdown(chance)
    assert "privileged" in entry_of(baseline).note


def test_a_comparison_in_words() -> None:
    first = task_scores(episode_of(played(EASY, seed, 1.0)) for seed in range(12))
    second = task_scores(episode_of(played(EASY, seed, float(seed < 6))) for seed in range(14))
    text = comparison_text(compare(first, second))
    assert text.startswith("first   1.00 [0.74, 1.00]\nsecond  0.50 [")
    assert "\ndifference +0.50 [" in text
    assert "over 12 tasks, p = 0.031; smallest difference" in text
    assert "0 tasks scored in the first run only, 2 in the second only" in text


def test_an_episode_that_was_cut_is_not_solved() -> None:
    def one(seed: int, stop: StopReason, info: dict[str, bool], env: str = "game:A-v0") -> Trajectory:
        return Trajectory(Task(env, seed), stop, (Turn("o", Completion("a"), 0.0, info),))

    episodes = [
        one(0, StopReason.TERMINATED, {"success": True}),
        one(1, StopReason.LENGTH_CUT, {}),
        one(2, StopReason.TURN_LIMIT, {}),
        one(3, StopReason.ERROR, {}),
        one(4, StopReason.TURN_LIMIT, {}, env="game:NeverSays-v0"),
    ]
    says, never = report_on(episodes).envs
    success = present(present(says.partial).success)
    assert (success.mean, success.tasks) == pytest.approx((1 / 3, 3))
    assert never.success is None


def measured(env: str, seed: int, metrics: object) -> Trajectory:
    turn = Turn("o", Completion("a"), 0.0, {"success": False, "metrics": metrics})
    return Trajectory(Task(env, seed), StopReason.TERMINATED, (turn,), policy="p")


def test_metrics_are_means_of_their_own_and_never_change_the_score() -> None:
    runs = [measured(EASY, 0, {"security": 1.0}), measured(EASY, 1, {"security": False, "note": "x", "odd": float("nan")})]
    report = report_on([*runs, measured(EASY, 2, "none"), played(OTHER, 0, 1.0), failed(EASY, 3)])
    easy, other = report.envs
    assert {name: (mean.mean, mean.tasks) for name, mean in present(easy.partial).metrics.items()} == {"security": (0.5, 2)}
    assert partial_score(easy).mean == 0.0
    assert other.metrics == {}
    assert "| game:Guess-v0-easy | security | 0.50" in report_markdown(report)
    assert "security" in report_html(report)
    assert "Other metrics" not in report_html(report_on([played(OTHER, 0, 1.0)]))
