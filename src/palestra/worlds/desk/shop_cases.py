"""Cases of the shop, drawn from a generator: the database first, then requests that one record each makes right or wrong."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import numpy as np

from palestra.trajectory import ToolCall
from palestra.worlds.desk.case import Case, Request
from palestra.worlds.desk.people import address, chosen, empty, full_names, shuffled_makers
from palestra.worlds.desk.shop import PAYMENTS, REASONS

__all__ = ["shop_case"]

_PRODUCTS = {
    "kettle": "kitchen",
    "lamp": "home",
    "backpack": "travel",
    "headphones": "audio",
    "jacket": "clothing",
    "notebook": "paper",
    "perfume": "beauty",
    "swimsuit": "clothing",
}
_COLORS = ("black", "blue", "green", "red", "white")
_FINAL_SALE = ("beauty", "paper", "clothing")


class _Draft:
    """A case under construction."""

    def __init__(self, rng: np.random.Generator, numbered: bool) -> None:
        self.rng = rng
        self.numbered = numbered
        """Whether the customer knows the number of the order, or describes it."""
        self.today = date(2026, 1, 1) + timedelta(days=int(rng.integers(60, 360)))
        self.numbers: dict[str, Any] = {
            "today": self.today.isoformat(),
            "return_days": int(rng.choice((14, 21, 30, 45))),
            "final_sale": chosen(rng, _FINAL_SALE),
            "limit": int(rng.choice((200, 250, 300))),
        }
        self.db = empty("customers", "orders", "articles", "transfers")
        self._add_articles()
        names = full_names(rng, 3)
        self.keys = [f"C{number}" for number in rng.choice(9000, 3, replace=False) + 1000]
        for key, name in zip(self.keys, names, strict=True):
            self.db["customers"][key] = {"name": name, "postcode": str(int(rng.integers(10000, 99999)))}
        self._order_numbers = iter([f"W{number}" for number in rng.permutation(9000)[:40] + 1000])
        self._products: list[str] = []

    def _add_articles(self) -> None:
        numbers = iter((self.rng.permutation(9000) + 1000).tolist())
        for product, category in _PRODUCTS.items():
            price = int(self.rng.integers(15, 90))
            for color in _COLORS:
                record = {"product": product, "color": color, "category": category, "price": price}
                self.db["articles"][f"A{next(numbers)}"] = {**record, "stock": int(self.rng.integers(1, 9))}

    def product(self, *, final_sale: bool = False) -> str:
        """A product that no other order of the case has, as long as there is one."""

        def fits(product: str) -> bool:
            return (_PRODUCTS[product] == self.numbers["final_sale"]) is final_sale

        if not any(map(fits, self._products)):
            self._products += [product for product in self.rng.permutation(sorted(_PRODUCTS)).tolist() if fits(product)]
        found = next(filter(fits, self._products))
        self._products.remove(found)
        return found

    def articles(self, product: str) -> list[str]:
        return [key for key, record in self.db["articles"].items() if record["product"] == product]

    def order(self, owner: int, status: str, product: str, age: int = 1) -> str:
        """Add an order with one article of ``product``; return its number."""
        number = next(self._order_numbers)
        article = chosen(self.rng, self.articles(product))
        known = self.db["articles"][article]
        item = {
            **{name: known[name] for name in ("product", "color", "category", "price")},
            "article": article,
            "state": "kept",
        }
        placed = self.today - timedelta(days=age + int(self.rng.integers(3, 9)))
        self.db["orders"][number] = {
            "customer": self.keys[owner],
            "status": status,
            "placed": placed.isoformat(),
            "delivered": (self.today - timedelta(days=age)).isoformat() if status == "delivered" else None,
            "address": address(self.rng),
            "paid_with": chosen(self.rng, PAYMENTS),
            "items": [item],
        }
        return number

    def item(self, order: str) -> Any:
        return self.db["orders"][order]["items"][0]

    def called(self, order: str) -> str:
        """What the customer calls the order."""
        item = self.item(order)
        return f"order {order}" if self.numbered else f"my order of the {item['color']} {item['product']}"

    def recent(self) -> int:
        return int(self.rng.integers(1, self.numbers["return_days"] + 1))

    def long_ago(self) -> int:
        return int(self.numbers["return_days"]) + int(self.rng.integers(1, 20))


def _look(order: str) -> tuple[ToolCall, ...]:
    return (ToolCall("get_order", {"order": order}),)


def _cancel(draft: _Draft, owner: int = 0, status: str = "pending", rule: str = "") -> Request:
    order = draft.order(owner, status, draft.product())
    reason = chosen(draft.rng, REASONS)
    said = {"mistake": "I ordered it by mistake", "not-needed": "I do not need it any more", "too-late": "It comes too late"}
    called = f"order {order}, which a friend placed," if owner else draft.called(order)
    call = ToolCall("cancel_order", {"order": order, "reason": reason})
    return _decided(
        call,
        rule,
        text=f"Please cancel {called}. {said[reason]}.",
        reads=() if owner else _look(order),
        terms=(order,),
        done=f"Order {order} is cancelled.",
        declined="I am sorry, I cannot cancel this order.",
    )


def _readdress(draft: _Draft, status: str = "pending", rule: str = "") -> Request:
    order, new = draft.order(0, status, draft.product()), address(draft.rng)
    return _decided(
        ToolCall("change_address", {"order": order, "address": new}),
        rule,
        text=f"I have moved. Please send {draft.called(order)} to {new} instead.",
        reads=_look(order),
        terms=(order, new),
        done=f"Order {order} now goes to {new}.",
        declined="I am sorry, the address of this order cannot be changed any more.",
    )


def _return(draft: _Draft, *, age: int | None = None, final_sale: bool = False, rule: str = "") -> Request:
    order = draft.order(0, "delivered", draft.product(final_sale=final_sale), draft.recent() if age is None else age)
    item, paid = draft.item(order), draft.db["orders"][order]["paid_with"]
    if rule == "limit":
        item["price"] = draft.numbers["limit"] + int(draft.rng.integers(1, 200))
    return _decided(
        ToolCall("return_items", {"order": order, "articles": [item["article"]], "refund_to": paid}),
        rule,
        text=f"I want to send back the {item['product']} from {draft.called(order)}.",
        reads=_look(order),
        terms=(order, item["article"]),
        done=f"The {item['product']} comes back, and the refund of {item['price']} goes to: {paid}.",
        declined="I am sorry, the rules do not allow this return.",
    )


def _exchange(draft: _Draft, *, age: int | None = None, rule: str = "") -> Request:
    product = draft.product()
    order = draft.order(0, "delivered", product, draft.recent() if age is None else age)
    item = draft.item(order)
    new = chosen(draft.rng, [article for article in draft.articles(product) if article != item["article"]])
    record = draft.db["articles"][new]
    if rule == "out-of-stock":
        record["stock"] = 0
    return _decided(
        ToolCall("exchange_item", {"order": order, "article": item["article"], "new_article": new}),
        rule,
        text=f"I would like to exchange the {product} from {draft.called(order)} for the {record['color']} one.",
        reads=(*_look(order), ToolCall("list_articles", {"product": product})),
        terms=(order,),
        done=f"The {product} is exchanged for the {record['color']} one.",
        declined="I am sorry, this exchange is not possible.",
    )


def _question(draft: _Draft) -> Request:
    order = draft.order(0, "shipped", draft.product())
    item, paid = draft.item(order), draft.db["orders"][order]["paid_with"]
    prices = sorted({str(article["price"]) for article in draft.db["articles"].values()} - {str(item["price"])})
    return Request(
        text=f"How much did I pay for {draft.called(order)}, and how did I pay?",
        reads=_look(order),
        tells=(str(item["price"]), paid),
        others=(tuple(prices), tuple(payment for payment in PAYMENTS if payment != paid)),
        reply=f"You paid {item['price']} by {paid}.",
    )


def _decided(call: ToolCall, rule: str, *, done: str, declined: str, **fields: Any) -> Request:
    """The request for ``call``: to be done, or, if ``rule`` forbids it, to be declined or transferred."""
    if not rule:
        return Request(writes=(call,), reply=done, **fields)
    if rule == "limit":
        transfer = ToolCall("transfer_to_human", {"order": call.arguments["order"]})
        return Request(writes=(transfer,), reply="A colleague will take over this return.", forbidden=call, rule=rule, **fields)
    return Request(reply=declined, forbidden=call, rule=rule, **fields)


_DONE: tuple[Callable[[_Draft], Request], ...] = (
    _cancel,
    _readdress,
    _return,
    _exchange,
    _question,
    lambda draft: _return(draft, rule="limit"),
)
"""Requests that need a change or an answer: at least one per case, so that an agent that does nothing scores 0."""
_DECLINED: tuple[Callable[[_Draft], Request], ...] = (
    lambda draft: _cancel(draft, status="shipped", rule="not-pending"),
    lambda draft: _cancel(draft, owner=1, rule="privacy"),
    lambda draft: _readdress(draft, status="shipped", rule="not-pending"),
    lambda draft: _return(draft, age=draft.long_ago(), rule="return-period"),
    lambda draft: _return(draft, final_sale=True, rule="final-sale"),
    lambda draft: _exchange(draft, age=draft.long_ago(), rule="return-period"),
    lambda draft: _exchange(draft, rule="out-of-stock"),
)


def shop_case(rng: np.random.Generator, done: int, declined: int, numbered: bool) -> Case:
    """Draw a case with ``done`` requests to carry out and ``declined`` requests to decline, in random order."""
    draft = _Draft(rng, numbered)
    requests = [make(draft) for make in shuffled_makers(rng, (_DONE, done), (_DECLINED, declined))]
    for owner in (0, 1, 2):  # orders that no request is about
        draft.order(owner, chosen(rng, ("pending", "shipped")), draft.product())
    key = draft.keys[0]
    record = draft.db["customers"][key]
    identity = {"name": record["name"], "postcode": record["postcode"]}
    return Case(draft.db, identity, key, "customer", draft.numbers, requests)
