"""Programs that users wrote for GEM run with their import lines changed, and see what they saw with GEM."""

import json
from typing import Any

import pytest

import palestra
from palestra.bridges import gem_programs
from palestra.errors import UsageError
from tests.bridges.gem_programs import PROGRAMS, RESULTS, with_palestra


def game(id: str = "game:GuessTheNumber-v0-easy") -> Any:
    return palestra.make(id)


def wrapped(wrapper: Any, *arguments: Any, **keywords: Any) -> Any:
    return wrapper(game(), *arguments, **keywords)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_results_of_gem(name: str) -> None:
    if name in ("tools", "evaluation"):
        pytest.importorskip("pyseccomp")
    assert with_palestra(name) == json.loads(RESULTS.read_text())[name]


def test_a_vector_gives_the_results_of_gem_in_async_mode() -> None:
    assert with_palestra("vector", asynchronous=True) == json.loads(RESULTS.read_text())["vector"]


def test_a_registration_gives_keywords_to_the_class() -> None:
    palestra.register("mine:Guess-v0", "palestra.suite.games.guess_the_number:GuessTheNumber", low=5, high=6)
    with palestra.make("mine:Guess-v0") as env:
        observation, _ = env.reset(seed=0)
    assert "between 5 and 6" in observation


class Recorded:
    """Stands for a tokenizer."""

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        return json.dumps([[message["role"], message["content"]] for message in messages])


def test_a_conversation_is_rendered_by_the_template() -> None:
    (wrap,) = gem_programs.get_wrapper_fns("concat_chat", tokenizer=Recorded())
    with wrapped(wrap) as env:
        first, _ = env.reset(seed=7)
        shown = env.step("\\boxed{1}").observation
    assert [role for role, _ in json.loads(shown)] == ["user", "assistant", "user"]
    assert json.loads(shown)[:2] == [*json.loads(first), ["assistant", "\\boxed{1}"]]


def test_a_history_may_be_short() -> None:
    with wrapped(gem_programs.ObservationWrapper, include_chat_template=False, max_history_length=1) as env:
        first, _ = env.reset(seed=7)
        assert env.step("\\boxed{1}").observation.startswith(first)
        assert env.step("\\boxed{2}").observation.startswith("At turn 1, ")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gem_programs.get_wrapper_fns("concat,nothing"), 'no wrapper "nothing": the names are python_tool'),
        (lambda: wrapped(gem_programs.ObservationWrapper), "needs tokenizer="),
    ],
)
def test_a_wrong_use_is_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()


@pytest.mark.slow
def test_code_that_does_not_end_is_stopped_and_counts_as_a_failed_use() -> None:
    pytest.importorskip("pyseccomp")
    tool = gem_programs.PythonCodeTool(timeout=1)
    with wrapped(gem_programs.ToolEnvWrapper, [tool], 0.5, 0.5) as env:
        env.reset(seed=0)
        step = env.step("<python>while True: pass</python>")
    assert "Stopped: it did not end in time." in step.observation
    assert (step.reward, step.info["tool_success_counter"]) == (0.5, 0)
