"""What a domain consists of: a database, tools over it, rules for its changes, and a customer with requests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from palestra.tools.schemas import argument_problem
from palestra.trajectory import ToolCall, ToolResult

__all__ = ["CLOSE_CASE", "Case", "Database", "DeskTool", "Domain", "Refusal", "Request", "lookup", "run_tool"]

Database = dict[str, dict[str, Any]]
"""Table → key → record. Plain JSON values."""

CLOSE_CASE = "close_case"


class Refusal(Exception):
    """A tool cannot do what was asked: there is no such record, or the value makes no sense. Its text is for the agent."""


def lookup(db: Database, table: str, key: object) -> Any:
    """Return the record ``key`` of ``table``, or raise a ``Refusal``."""
    if isinstance(key, str) and key in db[table]:
        return db[table][key]
    raise Refusal(f"There is no record {str(key)[:40]!r} among the {table}.")


@dataclass(frozen=True)
class DeskTool:
    """A tool of the desk."""

    name: str
    description: str
    arguments: Mapping[str, str]
    """Argument → JSON type, ``string``, ``integer`` or ``array``."""
    run: Callable[..., Any]
    """Called with the database and the arguments; returns a JSON value, or raises ``Refusal``."""
    writes: bool = False
    confirmed: tuple[str, ...] = ()
    """A change: the customer must have agreed to a message that contains the values of these arguments."""
    touches: tuple[tuple[str, str], ...] = ()
    """(argument, table): the records that a call reads or changes. They must belong to the customer."""

    @property
    def schema(self) -> dict[str, Any]:
        """Name, description and JSON schema of the arguments."""
        properties = {
            name: {"type": kind, "items": {"type": "string"}} if kind == "array" else {"type": kind}
            for name, kind in self.arguments.items()
        }
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(self.arguments),
            "additionalProperties": False,
        }
        return {"name": self.name, "description": self.description, "parameters": parameters}

    def problem(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with ``arguments``, or an empty string."""
        found = argument_problem(self.schema["parameters"], arguments)
        lists = [name for name, kind in self.arguments.items() if kind == "array"]
        if not found and any(not isinstance(item, str) for name in lists for item in arguments[name]):
            return f"{', '.join(lists)} must be a list of strings"
        return found


@dataclass(frozen=True, kw_only=True)
class Request:
    """One thing that the customer wants, and what the rules say about it."""

    text: str
    """The customer's words."""
    reads: tuple[ToolCall, ...]
    """What a careful agent looks at first."""
    writes: tuple[ToolCall, ...] = ()
    """The changes that the rules ask for; empty if the request must be declined or is a question."""
    tells: tuple[str, ...] = ()
    """What the agent must say: the answer to a question."""
    others: tuple[tuple[str, ...], ...] = ()
    """For each of ``tells``: what else would answer the question, wrongly. A message that says one of these is no answer."""
    terms: tuple[str, ...] = ()
    """The customer agrees to a message that contains all of these."""
    reply: str
    """What a perfect agent says when the request is settled."""
    forbidden: ToolCall | None = None
    """The change that the customer asks for and the rules forbid."""
    rule: str = ""
    """The rule that forbids it."""


@dataclass
class Case:
    """One task: a database, a customer, and the rules that hold today."""

    db: Database
    identity: Mapping[str, str]
    """What the customer says when asked who they are: argument of the domain's ``identify`` tool → value."""
    customer: str
    """The key of the customer's record."""
    owner: str
    """The field of other records that holds this key."""
    numbers: Mapping[str, Any]
    """The numbers in the rules, and today's date."""
    requests: list[Request] = field(default_factory=list)


class Domain(Protocol):
    """A kind of desk."""

    name: str
    identify: str
    """The tool that finds the customer's record."""
    tools: Mapping[str, DeskTool]

    def policy(self, numbers: Mapping[str, Any]) -> str:
        """The rules, as the agent reads them."""
        ...

    def broken(self, db: Database, call: ToolCall, numbers: Mapping[str, Any]) -> str:
        """The rule that a change would break, given the database before it; empty if none."""
        ...


def run_tool(tool: DeskTool, db: Database, arguments: Mapping[str, Any]) -> ToolResult:
    """Run ``tool`` and return its answer as JSON, or as an error that the agent reads."""
    if problem := tool.problem(arguments):
        return ToolResult(f"Wrong arguments: {problem}.", ok=False)
    try:
        return ToolResult(json.dumps(tool.run(db, **arguments), sort_keys=True))
    except Refusal as error:
        return ToolResult(str(error), ok=False)
