"""The environment: one agent at the desk, and a customer who is scripted or another player."""

import copy
import html
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.foundation.encoding import clean_text
from palestra.trajectory import Content, Task, ToolCall, ToolResult
from palestra.trajectory.calls import BadCall, format_call, format_result, parse_calls
from palestra.worlds.desk.case import CLOSE_CASE, Case, Domain
from palestra.worlds.desk.customer import CustomerState, brief, first_words, has_finished, reply
from palestra.worlds.desk.library import LIBRARY
from palestra.worlds.desk.library_cases import library_case
from palestra.worlds.desk.record import Record
from palestra.worlds.desk.shop import SHOP
from palestra.worlds.desk.shop_cases import shop_case
from palestra.worlds.desk.solving import ANYTHING_ELSE, next_action

__all__ = ["AGENT", "CUSTOMER", "ServiceDesk"]

AGENT, CUSTOMER = "agent", "customer"
_DOMAINS: Mapping[str, tuple[Domain, Callable[[np.random.Generator, int, int, bool], Case]]] = {
    "shop": (SHOP, shop_case),
    "library": (LIBRARY, library_case),
}
_MOST_CALLS = 8
"""Calls that one message may hold."""
_CLOSE = {"name": CLOSE_CASE, "description": "End the conversation.", "parameters": {"type": "object", "properties": {}}}


class ServiceDesk(Env):
    """Serve a customer: talk, use the tools, keep the rules, close the case.

    An action is one or more tool calls, or a message to the customer. The reward is 1 if the case is closed, the database is as
    it should be and no rule was broken, else 0. ``info["broken"]`` of the last step names the rules that were broken.

    Args:
        domain: ``shop`` or ``library``.
        done: Requests of the customer that the rules allow.
        declined: Requests that the rules forbid.
        numbered: The customer knows the numbers of their records. Otherwise they describe them.
        players: 1: the customer is scripted. 2: the customer is the player ``customer``, the agent the player ``agent``, and
            the oracle of the customer is the script.
        max_turns: Actions per episode, of both players together.
    """

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)

    def __init__(
        self,
        domain: str = "shop",
        done: int = 1,
        declined: int = 0,
        numbered: bool = True,
        players: int = 1,
        max_turns: int = 20,
    ) -> None:
        if domain not in _DOMAINS or not 1 <= done <= 4 or not 0 <= declined <= 4 or players not in (1, 2):
            raise UsageError("ServiceDesk takes the domain shop or library, done 1 to 4, declined 0 to 4, and 1 or 2 players")
        self.domain, self._draw = _DOMAINS[domain]
        self.done, self.declined, self.numbered, self.players = done, declined, numbered, players
        self.max_turns = max_turns

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.case = self._draw(self.rng, self.done, self.declined, self.numbered)
        self.record = Record(self.domain, self.case, copy.deepcopy(self.case.db))
        self.state = CustomerState()
        self.totals: Counter[str] = Counter()
        """Outcome → calls so far."""
        self.heard: list[str] = []
        """The customer's messages."""
        self.pending = ""
        """The agent's message that the customer has not answered yet."""
        tools = [*(tool.schema for tool in self.domain.tools.values()), _CLOSE]
        if self.players == 2:
            return f"{brief(self.case)}\nThe desk greets you. Say what you want.", {"player": CUSTOMER, "tools": []}
        self.heard.append(first_words(self.case))
        return self._opening(tools), {"tools": tools}

    def _opening(self, tools: list[dict[str, Any]]) -> str:
        listed = "\n".join(json.dumps(tool) for tool in tools)
        return (
            f"{self.domain.policy(self.case.numbers)}\n\nTools:\n{listed}\n"
            f"To use a tool, write {format_call(ToolCall('NAME', {'ARGUMENT': 'VALUE'}))}. A message with a call goes to the "
            f"tools only. A message without a call goes to the customer.\n\nThe customer says: {self.heard[-1]}"
        )

    def step(self, action: str) -> Step:
        action = clean_text(action)
        if self.players == 2 and self._is_customers_turn():
            return self._customer_says(action)
        parsed = parse_calls(action)
        if parsed.calls:
            return self._run(parsed.calls)
        if not action.strip():
            return self._to_agent("Write a message to the customer, or call a tool.")
        self.pending = action
        if self.players == 2:
            return Step(f"The desk says: {action}", 0.0, False, False, {"player": CUSTOMER})
        said, after = reply(self.case, self.state, action)
        return self._answered(said, after)

    def _is_customers_turn(self) -> bool:
        return not self.heard or bool(self.pending)

    def _scripted(self) -> tuple[str, CustomerState]:
        """What the script would say now."""
        return reply(self.case, self.state, self.pending) if self.heard else (first_words(self.case), self.state)

    def _customer_says(self, words: str) -> Step:
        """A message of the other player. The script's state follows, so that its oracle can take over at any turn."""
        first = not self.heard
        _, after = self._scripted()
        if not first:
            return self._answered(words, replace(after, finished=has_finished(words)))
        self.heard.append(words)
        tools = [*(tool.schema for tool in self.domain.tools.values()), _CLOSE]
        return self._to_agent(self._opening(tools), tools=tools)

    def _answered(self, words: str, after: CustomerState) -> Step:
        self.record.message(self.pending, words, self.state.current)
        self.pending, self.state = "", after
        self.heard.append(words)
        return self._to_agent(f"The customer says: {words}")

    def _to_agent(self, text: str, **info: Any) -> Step:
        return Step(text, 0.0, False, False, {**info, **({"player": AGENT} if self.players == 2 else {})})

    def _run(self, calls: tuple[ToolCall | BadCall, ...]) -> Step:
        results: list[str] = []
        made: list[dict[str, str]] = []
        for call in calls[:_MOST_CALLS]:
            name, ident = (call.name, call.id) if isinstance(call, ToolCall) else ("", "")
            if name == CLOSE_CASE:
                return self._closed(self._account([*made, {"name": name, "outcome": "ok"}]))
            result = self._result(call)
            results.append(format_result(name, result, ident))
            made.append({"name": name, "outcome": "ok" if result.ok else "failed"})
        if len(calls) > _MOST_CALLS:
            results.append(format_result("", ToolResult(f"Only the first {_MOST_CALLS} calls were run.", ok=False)))
        return self._to_agent("\n".join(results), role="tool", tools=self._account(made))

    def _account(self, made: list[dict[str, str]]) -> dict[str, Any]:
        """What this action called, and the totals of the episode, as ``UseTools`` reports them."""
        self.totals.update(call["outcome"] for call in made)
        return {"calls": made, "totals": dict(self.totals)}

    def _result(self, call: ToolCall | BadCall) -> ToolResult:
        if isinstance(call, BadCall):
            return ToolResult(call.error, ok=False)
        if call.name not in self.domain.tools:
            known = ", ".join([*self.domain.tools, CLOSE_CASE])
            return ToolResult(f"There is no such tool. There are: {known}.", ok=False)
        return self.record.call(call)

    def _closed(self, tools: dict[str, Any]) -> Step:
        broken = sorted(self.record.verdict(self.state.finished))
        reward = float(not broken)
        text = "The case is closed." + (f" Broken rules: {', '.join(broken)}." if broken else "")
        info: dict[str, Any] = {"success": not broken, "broken": broken, "tools": tools}
        if self.players == 2:
            info["rewards"] = {AGENT: reward, CUSTOMER: 0.0}
        return Step(text, reward, True, False, info)

    def oracle(self) -> str:
        if self.players == 2 and self._is_customers_turn():
            return self._scripted()[0]
        said = " ".join(self.heard)
        return next_action(self.record, self.state, all(value in said for value in self.case.identity.values()))

    def sample_random_action(self) -> str:
        draw = self.action_rng
        if draw.random() < 0.3:
            talk = (
                f"May I have your {' and '.join(self.case.identity)}?",
                ANYTHING_ELSE,
                "Do you confirm?",
                "One moment, please.",
            )
            return talk[int(draw.integers(len(talk)))]
        tool = list(self.domain.tools.values())[int(draw.integers(len(self.domain.tools)))]
        if draw.random() < 0.1:
            return format_call(ToolCall(CLOSE_CASE, {}))
        words = [key for table in self.record.db.values() for key in table] + list(self.case.identity.values())
        arguments: dict[str, Any] = {}
        for name, kind in tool.arguments.items():
            word, number = words[int(draw.integers(len(words)))], int(draw.integers(1, 30))
            arguments[name] = [word] if kind == "array" else number if kind == "integer" else word
        return format_call(ToolCall(tool.name, arguments))

    def fork(self) -> "ServiceDesk":
        return copy.deepcopy(self)

    def render(self) -> str:
        """Return the database and the rules broken so far as HTML for people: everything is escaped, nothing runs or loads."""
        shown = {name: table for name, table in self.record.db.items() if name != "articles"}
        tables = "".join(f"<div><b>{html.escape(name)}</b></div><table>{_rows(table)}</table>" for name, table in shown.items())
        return f"<div>{tables}<p>Broken rules: {html.escape(', '.join(sorted(self.record.broken)) or 'none')}</p></div>"


def _rows(table: Mapping[str, Any]) -> str:
    cells = ((html.escape(key), html.escape(json.dumps(record))) for key, record in table.items())
    return "".join(f"<tr><td>{key}</td><td>{record}</td></tr>" for key, record in cells)
