"""Whole episodes: the oracle, any text, forks, the same episode everywhere."""

import pytest
from tests.worlds.deepsearch.episodes import SMALL, played

from palestra.errors import UsageError
from palestra.suite.panels import load_panel
from palestra.tools.search import bm25
from palestra.trajectory import Task
from palestra.worlds.deepsearch import DeepSearch
from palestra.worlds.deepsearch.index import invented, search_tool


def small(**keywords: object) -> DeepSearch:
    return DeepSearch(documents=SMALL, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize("hops", [2, 3, 4, 6])
async def test_the_oracle_answers_by_searching_hop_by_hop(hops: int) -> None:
    env = small(hops=hops)
    for seed in range(25):
        steps = await played(env, seed)
        assert steps[-1].terminated
        assert steps[-1].reward == 1.0
        assert sum(step.info.get("role") == "tool" for step in steps) >= hops - 1


async def test_of_two_answers_in_one_message_the_first_counts() -> None:
    env = small()
    for wrong, right in (("<answer>{}</answer>", "\\boxed{{{}}}"), ("\\boxed{{{}}}", "<answer>{}</answer>")):
        await env.reset(seed=0)
        answer = env.question.answers[0]
        assert (await env.step(wrong.format("nobody") + right.format(answer))).reward == 0.0
        await env.reset(seed=0)
        assert (await env.step(right.format(answer) + wrong.format("nobody"))).reward == 1.0


async def test_the_tasks_of_the_panel_are_about_another_world() -> None:
    env = small()
    _, train = await env.reset(task=Task("search", 0))
    known = set(env._world.graph.names)
    _, test = await env.reset(task=Task("search", 0, split="test"))
    assert test["world"] != train["world"]
    assert not known & set(env._world.graph.names)
    while not (step := await env.step(await env.oracle())).terminated:
        pass
    assert step.reward == 1.0
    assert (await env.reset(task=Task("search", 0)))[1] == train
    with pytest.raises(UsageError, match="the splits train and test"):
        await env.reset(task=Task("search", 0, split="dev"))
    assert {task.split for name in ("search", "agentgym-rl") for task in load_panel(name) if "invented" in task.env} == {"test"}


async def test_both_forms_of_an_answer_and_of_a_search_count() -> None:
    env = small()
    await env.reset(seed=0)
    found = await env.step("<search>town</search>")
    assert (await env.step('<tool_call>{"name": "search", "arguments": {"query": "town"}}</tool_call>'))[0] == found[0]
    assert found.info["tools"]["calls"][0]["source"].startswith("sha256:")
    answer = env.question.answers[0]
    assert (await env.step(f"I think \\boxed{{{answer.upper()}}}")).reward == 1.0


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"world": "moon"}, "no world is called"),
        ({"hops": 0}, "hops must be from 1 to 8"),
        ({"search": "magic"}, "is not a way to search"),
        ({"search": "bm25?x=1"}, "is not a way to search"),
        ({"search": "dense"}, "dense search needs an embedder"),
        ({"search": "bm25?k=0"}, "at least 1 passage"),
    ],
)
def test_bad_arguments_are_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small(**keywords)


def test_episodes_share_one_index_which_the_next_process_finds_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = search_tool(invented(0, SMALL))
    assert search_tool(invented(0, SMALL)) is tool
    from palestra.worlds.deepsearch import index

    def no_build(*_: object) -> int:
        raise AssertionError("the index was built again")

    monkeypatch.setattr(index, "build_index", no_build)
    index._words.__wrapped__(index._Held(invented(0, SMALL)))
    monkeypatch.setattr(bm25, "_VERSION", 99)  # an index of another format is another folder
    with pytest.raises(AssertionError, match="built again"):
        index._words.__wrapped__(index._Held(invented(0, SMALL)))


async def test_under_agentgym_s_rule_a_wrong_answer_may_be_tried_again() -> None:
    env = small(retry=True)
    await env.reset(seed=0)
    wrong, right = [await env.step(f"<answer>{answer}</answer>") for answer in ("nobody", env.question.answers[0])]
    assert (wrong.terminated, wrong.reward, right.terminated, right.reward) == (False, 0.0, True, 1.0)
