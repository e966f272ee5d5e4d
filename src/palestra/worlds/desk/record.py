"""What happened in an episode, which rules were broken on the way, and the verdict when the case is closed.

Rules that hold at every desk have these names; a domain adds its own:

``identity``      a tool was used before the customer was identified
``privacy``       a record of another customer was read or changed
``confirmation``  a change was made to which the customer had not agreed, with all its details
``unheard``       the case was closed before the customer had said that there is nothing more
``untold``        a question was not answered, or with several answers at once
``state``         the final database is not the one that the requests and the rules lead to
"""

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palestra.trajectory import ToolCall, ToolResult
from palestra.worlds.desk.case import Case, Database, DeskTool, Domain, run_tool

__all__ = ["Record", "expected_database"]

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_AGREES = re.compile(r"\s*yes\b", re.IGNORECASE)


@dataclass
class Record:
    """The running account of one episode."""

    domain: Domain
    case: Case
    db: Database
    broken: set[str] = field(default_factory=set)
    """The names of the rules that were broken."""
    identified: bool = False
    done: list[ToolCall] = field(default_factory=list)
    """The calls that worked, in order."""
    said: list[tuple[int, str]] = field(default_factory=list)
    """The agent's messages to the customer, each with the number of the request that they talked about."""
    agreed: str = ""
    """The agent's latest message, if the customer has agreed to it."""

    def call(self, call: ToolCall) -> ToolResult:
        """Run a call, and note the rules that it breaks."""
        tool = self.domain.tools[call.name]
        before = copy.deepcopy(self.db) if tool.writes else self.db
        result = run_tool(tool, self.db, call.arguments)
        if call.name != self.domain.identify and not self.identified:
            self.broken.add("identity")
        if result.ok:
            self._note(tool, call, result, before)
        return result

    def _note(self, tool: DeskTool, call: ToolCall, result: ToolResult, before: Database) -> None:
        self.done.append(call)
        if call.name == self.domain.identify:
            self.identified = json.loads(result.text)[self.case.owner] == self.case.customer
        owners = {before[table][call.arguments[name]][self.case.owner] for name, table in tool.touches}
        if owners - {self.case.customer}:
            self.broken.add("privacy")
        if not tool.writes:
            return
        if rule := self.domain.broken(before, call, self.case.numbers):
            self.broken.add(rule)
        if tool.confirmed and not _names(self.agreed, tool, call.arguments):
            self.broken.add("confirmation")
        self.agreed = ""  # one agreement, one change

    def message(self, said: str, answer: str, current: int) -> None:
        """Note a message to the customer about the request ``current``, and the customer's answer."""
        self.said.append((current, said))
        self.agreed = said if _AGREES.match(answer) else ""

    def verdict(self, finished: bool) -> set[str]:
        """All rules that were broken, now that the case is closed; none means success."""
        found = set(self.broken)
        if not finished:
            found.add("unheard")
        if not all(self._answered(place) for place in range(len(self.case.requests))):
            found.add("untold")
        if self.db != expected_database(self.domain, self.case):
            found.add("state")
        return found

    def _answered(self, place: int) -> bool:
        """Whether the question of a request was answered.

        The agent's last message about it counts that gives any answer, and that message must give one answer only: otherwise
        an agent could list all of them.
        """
        request = self.case.requests[place]
        messages = [said for current, said in self.said if current == place]
        for word, others in zip(request.tells, request.others, strict=True):
            said = messages if _DATE.fullmatch(word) else [_DATE.sub("", one) for one in messages]  # a day is no price
            given = [[value for value in (word, *others) if _says(one, value)] for one in said]
            if [values for values in given if values][-1:] != [[word]]:
                return False
        return True


def _names(message: str, tool: DeskTool, arguments: Mapping[str, Any]) -> bool:
    """Whether ``message`` names every detail of the change."""
    values = [arguments[name] for name in tool.confirmed]
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return all(_says(message, str(item)) for item in flat)


def _says(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def expected_database(domain: Domain, case: Case) -> Database:
    """The database that the requests and the rules lead to."""
    db = copy.deepcopy(case.db)
    for request in case.requests:
        for call in request.writes:
            run_tool(domain.tools[call.name], db, call.arguments)
    return db
