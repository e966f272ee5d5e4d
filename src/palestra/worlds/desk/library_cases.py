"""Cases of the library, drawn from a generator: members and titles first, then requests, each with records of its own."""

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import numpy as np

from palestra.trajectory import ToolCall
from palestra.worlds.desk.case import Case, Request
from palestra.worlds.desk.people import empty, full_names, shuffled_makers

__all__ = ["library_case"]

_ADJECTIVES = ("Glass", "Silent", "Northern", "Hollow", "Paper", "Winter", "Copper", "Distant")
_NOUNS = ("Harbor", "Garden", "Engine", "River", "Archive", "Lantern", "Orchard", "Mirror")


class _Draft:
    """A case under construction. The customer is the first member."""

    def __init__(self, rng: np.random.Generator, numbered: bool) -> None:
        self.rng = rng
        self.numbered = numbered
        self.today = date(2026, 1, 1) + timedelta(days=int(rng.integers(0, 360)))
        self.numbers: dict[str, Any] = {
            "today": self.today.isoformat(),
            "days": int(rng.choice((7, 14, 21))),
            "renewals": int(rng.choice((2, 3, 4))),
            "queue": int(rng.choice((2, 3))),
            "fine": int(rng.choice((3, 5, 8))),
        }
        self.db = empty("members", "loans", "holds", "titles", "transfers")
        self.keys = [f"M{number}" for number in rng.permutation(9000)[:5] + 1000]
        for key, name in zip(self.keys, full_names(rng, 5), strict=True):
            self.db["members"][key] = {"member": key, "name": name, "card": str(int(rng.integers(100000, 999999)))}
        names = [f"The {first} {second}" for first in _ADJECTIVES for second in _NOUNS]
        self._titles: Iterator[str] = iter([names[place] for place in rng.permutation(len(names)).tolist()])
        self._loans = iter([f"L{number}" for number in rng.permutation(9000)[:40] + 1000])
        self._holds = iter([f"H{number}" for number in rng.permutation(9000)[:40] + 1000])

    def title(self, *, free: int = 0, reference: bool = False, waiting: int = 0) -> str:
        """Add a title that other members wait for."""
        title = next(self._titles)
        self.db["titles"][title] = {"free": free, "reference": reference}
        for key in self.keys[1 : 1 + waiting]:
            self.hold(key, title)
        return title

    def hold(self, member: str, title: str) -> str:
        hold = next(self._holds)
        self.db["holds"][hold] = {"member": member, "title": title}
        return hold

    def loan(self, *, owner: int = 0, renewals: int | None = None, fine: int = 0, waiting: int = 0) -> str:
        """Add a loan of a title of its own; return its number."""
        loan = next(self._loans)
        self.db["loans"][loan] = {
            "member": self.keys[owner],
            "title": self.title(waiting=waiting),
            "due": (self.today + timedelta(days=int(self.rng.integers(-9, 9)))).isoformat(),
            "renewals": int(self.rng.integers(self.numbers["renewals"])) if renewals is None else renewals,
            "fine": fine,
        }
        return loan

    def called(self, loan: str) -> str:
        """What the customer calls the loan."""
        return f"loan {loan}" if self.numbered else f'my loan of "{self.db["loans"][loan]["title"]}"'


def _look(draft: _Draft, loan: str) -> tuple[ToolCall, ...]:
    return (ToolCall("get_loan", {"loan": loan}), ToolCall("get_title", {"title": draft.db["loans"][loan]["title"]}))


def _decided(call: ToolCall, rule: str, *, done: str, declined: str, **fields: Any) -> Request:
    """The request for ``call``: to be done, or, if ``rule`` forbids it, to be declined."""
    if not rule:
        return Request(writes=(call,), reply=done, **fields)
    return Request(reply=declined, forbidden=call, rule=rule, **fields)


def _renew(draft: _Draft, rule: str = "", **records: int) -> Request:
    loan = draft.loan(**records)
    days = draft.numbers["days"]
    return _decided(
        ToolCall("renew_loan", {"loan": loan, "days": days}),
        rule,
        text=f"I would like to renew {draft.called(loan)}.",
        reads=_look(draft, loan),
        terms=(loan,),
        done=f"Loan {loan} is renewed by {days} days.",
        declined="I am sorry, this loan cannot be renewed.",
    )


def _place(draft: _Draft, rule: str = "", **records: Any) -> Request:
    title = draft.title(**records)
    return _decided(
        ToolCall("place_hold", {"member": draft.keys[0], "title": title}),
        rule,
        text=f'Please put me on the waiting list for "{title}".',
        reads=(ToolCall("get_title", {"title": title}),),
        terms=(title,),
        done=f'You are on the waiting list for "{title}".',
        declined="I am sorry, I cannot place a hold on this title.",
    )


def _drop(draft: _Draft, owner: int = 0, rule: str = "") -> Request:
    title = draft.title()
    hold = draft.hold(draft.keys[owner], title)
    named = f"hold {hold}" if draft.numbered or owner else f'my hold on "{title}"'
    return _decided(
        ToolCall("cancel_hold", {"hold": hold}),
        rule,
        text=f"Please cancel {named}{', which belongs to a friend' if owner else ''}.",
        reads=() if owner else (ToolCall("get_hold", {"hold": hold}),),
        terms=(hold,),
        done=f"Hold {hold} is cancelled.",
        declined="I am sorry, I can only cancel your own holds.",
    )


def _waive(draft: _Draft, rule: str = "") -> Request:
    limit = draft.numbers["fine"]
    fine = int(draft.rng.integers(limit + 1, limit + 20)) if rule else int(draft.rng.integers(1, limit + 1))
    loan = draft.loan(fine=fine)
    return _decided(
        ToolCall("waive_fine", {"loan": loan}),
        rule,
        text=f"There is a fine on {draft.called(loan)}. Could you waive it?",
        reads=_look(draft, loan)[:1],
        terms=(loan,),
        done=f"The fine on loan {loan} is waived.",
        declined="I am sorry, this fine is too high to be waived.",
    )


def _lost(draft: _Draft) -> Request:
    loan = draft.loan()
    return Request(
        text=f"I have lost the book of {draft.called(loan)}. What now?",
        reads=_look(draft, loan)[:1],
        writes=(ToolCall("transfer_to_librarian", {"loan": loan}),),
        reply="A librarian will take over.",
    )


def _question(draft: _Draft) -> Request:
    loan = draft.loan()
    due = draft.db["loans"][loan]["due"]
    around = [
        (draft.today + timedelta(days=days)).isoformat() for days in range(-9, 10) if days
    ]  # an agent may say today's date
    return Request(
        text=f"When is {draft.called(loan)} due?",
        reads=_look(draft, loan)[:1],
        tells=(due,),
        others=(tuple(day for day in around if day != due),),
        reply=f"It is due on {due}.",
    )


_DONE: tuple[Callable[[_Draft], Request], ...] = (_renew, _place, _drop, _waive, _lost, _question)
_DECLINED: tuple[Callable[[_Draft], Request], ...] = (
    lambda draft: _renew(draft, "renewed-too-often", renewals=draft.numbers["renewals"]),
    lambda draft: _renew(draft, "fine-open", fine=int(draft.rng.integers(1, 9))),
    lambda draft: _renew(draft, "reserved", waiting=1),
    lambda draft: _place(draft, "reference", reference=True),
    lambda draft: _place(draft, "on-the-shelf", free=1),
    lambda draft: _place(draft, "queue-full", waiting=draft.numbers["queue"]),
    lambda draft: _waive(draft, "fine-limit"),
    lambda draft: _drop(draft, 1, "privacy"),
)


def library_case(rng: np.random.Generator, done: int, declined: int, numbered: bool) -> Case:
    """Draw a case with ``done`` requests to carry out and ``declined`` requests to decline, in random order."""
    draft = _Draft(rng, numbered)
    requests = [make(draft) for make in shuffled_makers(rng, (_DONE, done), (_DECLINED, declined))]
    for owner in (0, 1):  # loans that no request is about
        draft.loan(owner=owner)
    record = draft.db["members"][draft.keys[0]]
    identity = {"name": record["name"], "card": record["card"]}
    return Case(draft.db, identity, draft.keys[0], "member", draft.numbers, requests)
