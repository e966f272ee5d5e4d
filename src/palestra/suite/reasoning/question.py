r"""One question of a reasoning-gym generator: the policy answers it once, and the generator scores the answer."""

import copy
from typing import Any

from palestra.core import Env, Step
from palestra.errors import Unsupported
from palestra.foundation.seeding import derive
from palestra.grading import last_boxed
from palestra.suite.reasoning import library
from palestra.suite.reasoning.ids import FLOORS
from palestra.suite.reasoning.oracles import right_answer
from palestra.trajectory import Task

__all__ = ["Reasoning", "SlowReasoning"]

_HOW = "\n\nPut your final answer into \\boxed{}; only the last one counts."

_OTHERS = 16
"""Number of tasks whose answers ``sample_random_action`` uses."""

_CHECKED = frozenset({"intermediate_integration", "propositional_logic", "string_insertion", "string_manipulation"})
"""Generators that sometimes ask for something without an answer, or give the answer away."""
_MOST_DRAWS = 100
"""Most questions drawn for a task. With some parameters none is worth asking; then the last one is asked."""

_answers: dict[tuple[str, str, int], str | None] = {}
"""Right answers, by generator, settings and number."""


class Reasoning(Env):
    r"""Answer one question of the generator ``name``.

    ``level`` chooses a step of the generator's own curriculum, ``config`` sets its parameters by name, and ``Task.params`` may
    do both for a single task. The last ``\boxed{…}`` is the answer. The generator scores it between 0 and 1; many give partial
    credit. A text without an answer scores 0.
    """

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)
    client_params = frozenset({"level"})  # the other parameters set sizes without a bound
    counts_turns = True  # every step ends the episode

    def __init__(self, name: str, level: int | None = None, **config: Any) -> None:
        self.name = name
        self._level = level
        self._own = config
        self._config = library.settings(name, level, config)
        library.draw(name, self._config, 0)  # reports wrong parameters here, and loads the tables

    @property
    def floor(self) -> float:
        return FLOORS.get(self.name, 0.0)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        wanted = dict(self.task.params)
        level = wanted.pop("level", self._level)
        self._settings = library.settings(self.name, level, {**self._own, **wanted}) if self.task.params else self._config
        self._entry = self._question()
        return f"{self._entry['question'].strip()}{_HOW}", {"max_turns": 1}

    def step(self, action: str) -> Step:
        answer = last_boxed(action)
        if answer is None:
            answer = _between_braces(action)
        if answer is None:
            return Step("There is no \\boxed{} answer.", 0.0, True, False, {"success": False, "format_error": True})
        score = library.score(self.name, self._settings, self._entry, answer)
        return Step("", score, True, False, {"success": score > 1 - 1e-6})

    def oracle(self) -> str:
        answer = right_answer(self.name, self._entry)
        if answer is None:
            raise Unsupported(f"rg:{self.name} has no oracle(): the library gives no answer for these parameters")
        return f"\\boxed{{{answer}}}"

    def sample_random_action(self) -> str:
        """Return the right answer to another task of the same generator."""
        other = int(self.action_rng.integers(_OTHERS))
        answer = self._other_answer(other)
        if answer is None:
            raise Unsupported(f"rg:{self.name} has no sample_random_action(): the library gives no answers")
        return f"\\boxed{{{answer}}}"

    def fork(self) -> "Reasoning":
        return copy.deepcopy(self)

    def _question(self) -> library.Entry:
        """Return a question of this task that is worth asking; draw again if it is not."""
        for _ in range(_MOST_DRAWS):
            entry = library.draw(self.name, self._settings, int(self.rng.integers(library.SEEDS, endpoint=True)))
            name = library.generator_of(self.name, entry)
            if name not in _CHECKED or library.worth_asking(name, entry, right_answer(name, entry) or ""):
                break
        return entry

    def _other_answer(self, number: int) -> str | None:
        key = (self.name, repr(sorted(self._settings.items())), number)
        if key not in _answers:
            seed = int(derive(number, "answers", self.name).integers(library.SEEDS))
            _answers[key] = right_answer(self.name, library.draw(self.name, self._settings, seed))
        return _answers[key]


def _between_braces(text: str) -> str | None:
    r"""Return the text between the last ``\boxed{`` and the last ``}``, for an answer whose own braces do not match."""
    start, end = text.rfind("\\boxed{"), text.rfind("}")
    return text[start + len("\\boxed{") : end].strip() if -1 < start < end else None


class SlowReasoning(Reasoning):
    """Run a generator or scorer that may take 0.1 s or more in a worker process."""

    blocking = True
