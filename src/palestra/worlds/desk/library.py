"""The desk of a library: its tools, and the rules for changes."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from palestra.trajectory import ToolCall
from palestra.worlds.desk.case import Database, DeskTool, Refusal, lookup

__all__ = ["LIBRARY", "Library"]


def _find_member(db: Database, name: str, card: str) -> Any:
    for key, record in db["members"].items():
        if record["name"].lower() == name.strip().lower() and record["card"] == card.strip():
            own = {
                table: sorted(one for one, held in db[table].items() if held["member"] == key) for table in ("loans", "holds")
            }
            return {"member": key, "name": record["name"], **own}
    raise Refusal("No member has this name and this card.")


def _get_loan(db: Database, loan: str) -> Any:
    return {"loan": loan, **lookup(db, "loans", loan)}


def _get_hold(db: Database, hold: str) -> Any:
    return {"hold": hold, **lookup(db, "holds", hold)}


def _get_title(db: Database, title: str) -> Any:
    record = lookup(db, "titles", title)
    return {"title": title, **record, "waiting": sum(hold["title"] == title for hold in db["holds"].values())}


def _renew_loan(db: Database, loan: str, days: int) -> Any:
    record = lookup(db, "loans", loan)
    if not 1 <= days <= 365:
        raise Refusal("A renewal has 1 to 365 days.")
    record["due"] = (date.fromisoformat(record["due"]) + timedelta(days=int(days))).isoformat()
    record["renewals"] += 1
    return {"loan": loan, "due": record["due"]}


def _place_hold(db: Database, member: str, title: str) -> Any:
    lookup(db, "members", member)
    lookup(db, "titles", title)
    hold = f"H{max((int(key[1:]) for key in db['holds']), default=1000) + 1}"
    db["holds"][hold] = {"member": member, "title": title}
    return {"hold": hold, "title": title}


def _cancel_hold(db: Database, hold: str) -> Any:
    lookup(db, "holds", hold)
    del db["holds"][hold]
    return {"hold": hold, "cancelled": True}


def _waive_fine(db: Database, loan: str) -> Any:
    record = lookup(db, "loans", loan)
    record["fine"] = 0
    return {"loan": loan, "fine": 0}


def _transfer(db: Database, loan: str) -> Any:
    lookup(db, "loans", loan)
    db["transfers"][loan] = True
    return {"loan": loan, "transferred": True}


_LOAN, _HOLD, _MEMBER = (("loan", "loans"),), (("hold", "holds"),), (("member", "members"),)
_TOOLS = (
    DeskTool("find_member", "Find a member with their loans and holds.", {"name": "string", "card": "string"}, _find_member),
    DeskTool("get_loan", "Show a loan: title, due date, renewals, fine.", {"loan": "string"}, _get_loan, touches=_LOAN),
    DeskTool("get_hold", "Show a hold.", {"hold": "string"}, _get_hold, touches=_HOLD),
    DeskTool("get_title", "Show a title: free copies and how many members wait for it.", {"title": "string"}, _get_title),
    DeskTool(
        "renew_loan",
        "Renew a loan by a number of days.",
        {"loan": "string", "days": "integer"},
        _renew_loan,
        writes=True,
        confirmed=("loan", "days"),
        touches=_LOAN,
    ),
    DeskTool(
        "place_hold",
        "Put a member on the waiting list of a title.",
        {"member": "string", "title": "string"},
        _place_hold,
        writes=True,
        confirmed=("title",),
        touches=_MEMBER,
    ),
    DeskTool(
        "cancel_hold", "Cancel a hold.", {"hold": "string"}, _cancel_hold, writes=True, confirmed=("hold",), touches=_HOLD
    ),
    DeskTool(
        "waive_fine",
        "Waive the fine on a loan.",
        {"loan": "string"},
        _waive_fine,
        writes=True,
        confirmed=("loan",),
        touches=_LOAN,
    ),
    DeskTool(
        "transfer_to_librarian", "Hand a loan over to a librarian.", {"loan": "string"}, _transfer, writes=True, touches=_LOAN
    ),
)


class Library:
    """Loans, renewals, holds and fines."""

    name = "library"
    identify = "find_member"
    tools: Mapping[str, DeskTool] = {tool.name: tool for tool in _TOOLS}

    def policy(self, numbers: Mapping[str, Any]) -> str:
        """The rules, as the agent reads them."""
        return (
            f"You work at the service desk of a library. Today is {numbers['today']}.\n"
            "Rules:\n"
            "1. First ask for the member's full name and card number and call find_member. Before that, use no other tool. "
            "Look only at loans and holds of this member, and never change or reveal another member's.\n"
            "2. Before each change, send the member a message that names the change with all its details (number of the loan "
            "or hold, days, title) and asks for confirmation. Make the change only after the member has said yes.\n"
            f"3. Renew a loan by exactly {numbers['days']} days. Do not renew it if it was renewed {numbers['renewals']} times "
            "already, if there is a fine on it, or if another member waits for the title.\n"
            f"4. Place a hold only on a title without a free copy that is not for reference, and only if fewer than "
            f"{numbers['queue']} members wait for it.\n"
            f"5. Waive a fine only if it is at most {numbers['fine']}.\n"
            "6. If a member has lost what they borrowed, call transfer_to_librarian for this loan. Transfer nothing else. A "
            "transfer needs no confirmation.\n"
            "7. Decline every request that these rules do not allow.\n"
            "8. When a request is settled, tell the member the result and ask whether there is anything else. Call close_case "
            "when the member has no further request."
        )

    def broken(self, db: Database, call: ToolCall, numbers: Mapping[str, Any]) -> str:
        """The rule that a change would break, given the database before it; empty if none."""
        given = call.arguments
        if call.name == "renew_loan":
            return self._broken_renewal(db, given, numbers)
        if call.name == "place_hold":
            return self._broken_hold(db, given["title"], numbers)
        if call.name == "waive_fine":
            return "" if db["loans"][given["loan"]]["fine"] <= numbers["fine"] else "fine-limit"
        return ""

    def _broken_renewal(self, db: Database, given: Mapping[str, Any], numbers: Mapping[str, Any]) -> str:
        loan = db["loans"][given["loan"]]
        if loan["renewals"] >= numbers["renewals"]:
            return "renewed-too-often"
        if loan["fine"]:
            return "fine-open"
        if any(hold["title"] == loan["title"] and hold["member"] != loan["member"] for hold in db["holds"].values()):
            return "reserved"
        return "" if given["days"] == numbers["days"] else "renewal-length"

    def _broken_hold(self, db: Database, title: str, numbers: Mapping[str, Any]) -> str:
        known = _get_title(db, title)
        if known["reference"]:
            return "reference"
        if known["free"]:
            return "on-the-shelf"
        return "" if known["waiting"] < numbers["queue"] else "queue-full"


LIBRARY = Library()
