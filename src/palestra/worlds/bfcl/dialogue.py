"""A user who asks for one thing after another, and an agent that calls functions to do them.

The user's turn ends when the agent writes a message without a call. Then the objects on which the agent made its calls are
compared with objects on which the gold calls were made, as the leaderboard does it. The agent must have called something, all
public state must be equal, and every result of this turn's gold calls must be among the results that the agent has seen so far.
A turn without gold calls (a function or a value is missing) is not compared; what the agent changed in it shows in the next
turn. The words of the agent are never graded. The first turn that differs ends the episode with reward 0; after the last turn
the reward is 1.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any

from palestra.authoring.changes import drawn_changes
from palestra.authoring.function_calls import Schema, describe, read_calls, refusal, sample_call, show_result
from palestra.authoring.indices import draw_index
from palestra.core import Env, Step
from palestra.trajectory import StopReason, Task, ToolCall
from palestra.trajectory.calls import BadCall, format_call
from palestra.worlds.bfcl.apis import Answer, Apis
from palestra.worlds.bfcl.package import gold_call, read_tasks

__all__ = ["MESSAGES_PER_TURN", "FunctionDialogue"]

MESSAGES_PER_TURN = 20
"""Messages with calls that the agent may write in one turn of the user."""
MOST_TURNS = 8
"""Turns of the user in the longest task."""

_RULES = """\
You work for a user by calling functions. These functions exist, one per line:
{functions}

To call, write <tool_call>{{"name": …, "arguments": {{…}}}}</tool_call>. Several calls may stand in one message.
They run in order, and you see their results. A message without a call ends your work on the request, and the user continues.
Do exactly what the user asks, no more. If a function or a value that you need is missing, say so and call nothing.

User: {request}"""

_MORE = """\
These functions have been added:
{functions}

User: You have more functions now. Please try again."""


class FunctionDialogue(Env):
    """One task of BFCL's multi-turn categories per episode.

    Args:
        category: ``base``, ``miss_func``, ``miss_param`` or ``long_context``.
    """

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)
    max_turns = MOST_TURNS * (MESSAGES_PER_TURN + 1)
    counts_turns = True

    def __init__(self, category: str) -> None:
        self.category = category

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        rows = read_tasks(self.category)
        self._row = rows[draw_index(self.task, len(rows), self.rng, f"BFCL's {self.category} has tasks")]
        self._apis, self._gold = Apis(self._row), Apis(self._row)
        self._turn = self._messages = self._calls = self._calls_before = 0
        self._seen: Counter[str] = Counter()
        self._withheld = self._held_back()
        self._functions = {name: schema for name, schema in self._apis.schemas.items() if name not in self._withheld}
        request = _RULES.format(functions=describe(self._functions.values()), request=self._request())
        info = {"tools": list(self._functions.values()), "data": {"id": self._row["id"], "sha256": rows.sha256}}
        return request, info

    def step(self, action: str) -> Step:
        calls = read_calls(action)
        if not calls:
            return self._answered()
        self._messages += 1
        if self._messages > MESSAGES_PER_TURN:
            return Step("", 0.0, False, True, self._end(success=False, stop_reason=StopReason.TURN_LIMIT.value))
        results = "\n".join(self._run(call) for call in calls)
        return Step(results, 0.0, False, False, {"role": "tool", "calls": self._calls})

    def _run(self, call: ToolCall | BadCall) -> str:
        problem = refusal(call, self._functions)
        if problem or isinstance(call, BadCall):
            return show_result(call, problem, ok=False)
        self._calls += 1
        answer = self._apis.call(call)
        self._seen[answer.text] += 1
        return show_result(call, answer.text, ok=answer.ok)

    def _answered(self) -> Step:
        """Compare the turn that ends here with the gold calls, and begin the next one."""
        gold = [self._gold.call(call) for call in self._gold_calls(self._turn)]
        right = not gold or self._is_right(gold)
        self._turn += right
        self._messages, self._calls_before = 0, self._calls
        if not right or self._turn == len(self._row["question"]):
            return Step("", float(right), True, False, self._end(success=right))
        added = self._added()
        if not added:
            return Step(f"User: {self._request()}", 0.0, False, False, {})
        self._functions.update(added)
        return Step(_MORE.format(functions=describe(added.values())), 0.0, False, False, {"tools": [*self._functions.values()]})

    def _is_right(self, gold: Sequence[Answer]) -> bool:
        wanted = Counter(answer.text for answer in gold)
        return self._calls > self._calls_before and wanted <= self._seen and self._apis.same_state(self._gold)

    def _end(self, **more: Any) -> dict[str, Any]:
        return {"turns_passed": self._turn, "turns": len(self._row["question"]), "calls": self._calls, **more}

    def _request(self) -> str:
        return "\n".join(str(message["content"]) for message in self._row["question"][self._turn])

    def _held_back(self) -> dict[str, int]:
        """Return the functions that are missing at first, each with the turn of the user that brings it.

        A function that a gold call needs before that turn is not held back: the task could not be solved without it.
        """
        missed = {name: int(turn) for turn, names in self._row.get("missed_function", {}).items() for name in names}
        used = [(call.name, turn) for turn in range(len(self._row["gold"])) for call in self._gold_calls(turn)]
        needed = {name for name, turn in used if turn < missed.get(name, 0)}
        return {name: turn for name, turn in missed.items() if name not in needed}

    def _added(self) -> dict[str, Schema]:
        return {name: self._apis.schemas[name] for name, turn in self._withheld.items() if turn == self._turn}

    def _gold_calls(self, turn: int) -> list[ToolCall]:
        return [gold_call(written, self._gold.methods) for written in self._row["gold"][turn]]

    def oracle(self) -> str:
        """Return the gold calls of this turn in one message, and then an answer."""
        calls = self._gold_calls(self._turn)
        return "\n".join(map(format_call, calls)) if calls and not self._messages else "Done."

    def sample_random_action(self) -> str:
        """Return a random call, or now and then an answer."""
        return "Done." if self.action_rng.random() < 0.2 else sample_call(self._functions, self.action_rng)

    def render(self) -> str:
        """Return the current request, the calls so far, and what they have changed as HTML for people."""
        request = self._request() if self._turn < len(self._row["question"]) else "The user has no more requests."
        made = [(call.name, call.arguments) for call in self._apis.made]
        return drawn_changes(request, made, self._apis.changed())

    def fork(self) -> "FunctionDialogue":
        twin = copy.copy(self)
        twin._apis, twin._gold = self._apis.fork(), self._gold.fork()
        twin._seen, twin._functions = self._seen.copy(), dict(self._functions)
        twin._rng, twin._action_rng = copy.deepcopy((self._rng, self._action_rng))
        return twin
