"""The desk of an online shop: its tools, and the rules for changes."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from palestra.trajectory import ToolCall
from palestra.worlds.desk.case import Database, DeskTool, Refusal, lookup

__all__ = ["SHOP", "Shop", "returnable"]

REASONS = ("mistake", "not-needed", "too-late")
PAYMENTS = ("card", "invoice", "voucher")


def _find_customer(db: Database, name: str, postcode: str) -> Any:
    for key, record in db["customers"].items():
        if record["name"].lower() == name.strip().lower() and record["postcode"] == postcode.strip():
            orders = sorted(number for number, order in db["orders"].items() if order["customer"] == key)
            return {"customer": key, "name": record["name"], "orders": orders}
    raise Refusal("No customer has this name and this postcode.")


def _get_order(db: Database, order: str) -> Any:
    return {"order": order, **lookup(db, "orders", order)}


def _list_articles(db: Database, product: str) -> Any:
    found = {key: record for key, record in db["articles"].items() if record["product"] == product.strip().lower()}
    if not found:
        raise Refusal(f"There is no product {product[:40]!r}.")
    return found


def _cancel_order(db: Database, order: str, reason: str) -> Any:
    if reason not in REASONS:
        raise Refusal(f"The reason must be one of {', '.join(REASONS)}.")
    record = lookup(db, "orders", order)
    record["status"], record["reason"] = "cancelled", reason
    return {"order": order, "status": "cancelled"}


def _change_address(db: Database, order: str, address: str) -> Any:
    record = lookup(db, "orders", order)
    record["address"] = address.strip()
    return {"order": order, "address": record["address"]}


def _items(record: Any, articles: list[str]) -> list[Any]:
    held = {item["article"]: item for item in record["items"]}
    if not articles or len(set(articles)) < len(articles) or not held.keys() >= set(articles):
        raise Refusal(f"Name articles of the order, each once: {', '.join(held)}.")
    return [held[article] for article in articles]


def _return_items(db: Database, order: str, articles: list[str], refund_to: str) -> Any:
    record = lookup(db, "orders", order)
    if refund_to not in PAYMENTS:
        raise Refusal(f"A refund goes to one of {', '.join(PAYMENTS)}.")
    items = _items(record, articles)
    for item in items:
        item["state"] = f"returned, refund to {refund_to}"
    return {"order": order, "refund": sum(item["price"] for item in items), "refund_to": refund_to}


def _exchange_item(db: Database, order: str, article: str, new_article: str) -> Any:
    record = lookup(db, "orders", order)
    (item,) = _items(record, [article])
    lookup(db, "articles", new_article)["stock"] -= 1
    item["state"] = f"exchanged for {new_article}"
    return {"order": order, "article": article, "new_article": new_article}


def _transfer(db: Database, order: str) -> Any:
    lookup(db, "orders", order)
    db["transfers"][order] = True
    return {"order": order, "transferred": True}


_ORDER = (("order", "orders"),)
_TOOLS = (
    DeskTool(
        "find_customer", "Find a customer and their order numbers.", {"name": "string", "postcode": "string"}, _find_customer
    ),
    DeskTool("get_order", "Show an order: status, dates, items, payment.", {"order": "string"}, _get_order, touches=_ORDER),
    DeskTool("list_articles", "Show all articles of a product, with their stock.", {"product": "string"}, _list_articles),
    DeskTool(
        "cancel_order",
        f"Cancel an order. The reason is {', '.join(REASONS)}.",
        {"order": "string", "reason": "string"},
        _cancel_order,
        writes=True,
        confirmed=("order",),
        touches=_ORDER,
    ),
    DeskTool(
        "change_address",
        "Change the delivery address of an order.",
        {"order": "string", "address": "string"},
        _change_address,
        writes=True,
        confirmed=("order", "address"),
        touches=_ORDER,
    ),
    DeskTool(
        "return_items",
        f"Take articles of an order back. The refund goes to {', '.join(PAYMENTS)}.",
        {"order": "string", "articles": "array", "refund_to": "string"},
        _return_items,
        writes=True,
        confirmed=("order", "articles", "refund_to"),
        touches=_ORDER,
    ),
    DeskTool(
        "exchange_item",
        "Exchange an article of an order for another article.",
        {"order": "string", "article": "string", "new_article": "string"},
        _exchange_item,
        writes=True,
        confirmed=("order", "article", "new_article"),
        touches=_ORDER,
    ),
    DeskTool(
        "transfer_to_human", "Hand an order over to a colleague.", {"order": "string"}, _transfer, writes=True, touches=_ORDER
    ),
)


def returnable(order: Any, articles: list[str], numbers: Mapping[str, Any]) -> str:
    """The rule that keeps these articles from coming back; empty if none."""
    if order["status"] != "delivered":
        return "not-delivered"
    if (date.fromisoformat(numbers["today"]) - date.fromisoformat(order["delivered"])).days > numbers["return_days"]:
        return "return-period"
    chosen = [item for item in order["items"] if item["article"] in articles]
    if any(item["category"] == numbers["final_sale"] for item in chosen):
        return "final-sale"
    if any(item["state"] != "kept" for item in chosen):
        return "already-returned"
    return ""


class Shop:
    """Orders, cancellations, returns and exchanges."""

    name = "shop"
    identify = "find_customer"
    tools: Mapping[str, DeskTool] = {tool.name: tool for tool in _TOOLS}

    def policy(self, numbers: Mapping[str, Any]) -> str:
        """The rules, as the agent reads them."""
        return (
            f"You work at the service desk of an online shop. Today is {numbers['today']}.\n"
            "Rules:\n"
            "1. First ask for the customer's full name and postcode and call find_customer. Before that, use no other tool. "
            "Look only at orders of this customer, and never change or reveal another customer's order.\n"
            "2. Before each change, send the customer a message that names the change with all its details (order number, "
            "article numbers, new address, where the refund goes) and asks for confirmation. Make the change only after the "
            "customer has said yes.\n"
            "3. Cancel an order, or change its address, only while its status is pending.\n"
            f"4. Take articles back only if the order was delivered at most {numbers['return_days']} days ago. Articles of the "
            f"category {numbers['final_sale']} never come back, and no article comes back twice. The refund goes to the "
            "payment method of the order.\n"
            "5. Exchange an article only if it could be returned under rule 4, and only for an article of the same product "
            "that is in stock.\n"
            f"6. If the articles of one return cost more than {numbers['limit']} together, do not take them back: call "
            "transfer_to_human. Transfer nothing else. A transfer needs no confirmation.\n"
            "7. Decline every request that these rules do not allow.\n"
            "8. When a request is settled, tell the customer the result and ask whether there is anything else. Call "
            "close_case when the customer has no further request."
        )

    def broken(self, db: Database, call: ToolCall, numbers: Mapping[str, Any]) -> str:
        """The rule that a change would break, given the database before it; empty if none."""
        order, given = db["orders"][call.arguments["order"]], call.arguments
        if call.name in ("cancel_order", "change_address"):
            return "" if order["status"] == "pending" else "not-pending"
        if call.name == "return_items":
            return self._broken_return(order, given, numbers)
        if call.name == "exchange_item":
            return self._broken_exchange(db, order, given, numbers)
        return ""

    def _broken_return(self, order: Any, given: Mapping[str, Any], numbers: Mapping[str, Any]) -> str:
        if rule := returnable(order, given["articles"], numbers):
            return rule
        if given["refund_to"] != order["paid_with"]:
            return "refund-method"
        total = sum(item["price"] for item in order["items"] if item["article"] in given["articles"])
        return "limit" if total > numbers["limit"] else ""

    def _broken_exchange(self, db: Database, order: Any, given: Mapping[str, Any], numbers: Mapping[str, Any]) -> str:
        if rule := returnable(order, [given["article"]], numbers):
            return rule
        old, new = db["articles"][given["article"]], db["articles"][given["new_article"]]
        if old["product"] != new["product"]:
            return "other-product"
        return "" if new["stock"] > 0 else "out-of-stock"


SHOP = Shop()
