"""How the oracle of the shop acts. Every plan decides from the page on which it is, and from what it has seen."""

import re

from palestra.worlds.web.sites.errands import Plan, Walk
from palestra.worlds.web.sites.shop.world import Address

__all__ = ["address_fields", "at_account", "at_product", "buy", "fill_basket", "prices", "set_quantity"]

_BOX = "Search the shop"


def at_product(walk: Walk, title: str) -> str | None:
    """Return the next action on the way to the page of a product, or ``None`` if it is open."""
    if re.fullmatch(rf"/catalogue/{title.lower().replace(' ', '-')}_\d+/", walk.path):
        return None
    link = walk.find(title, "link") if walk.path.startswith(("/catalogue/", "/search/")) else None
    return f"click [{link.ref}]" if link else f"type [{walk.need(_BOX, 'searchbox').ref}] [{title}] [1]"


def at_account(walk: Walk, section: str, path: str) -> str | None:
    """Return the next action on the way to a section of the account, or ``None`` if it is open."""
    if walk.path.startswith(path):
        return None
    return walk.click(section, "link") if walk.find(section, "link") else walk.click("Account", "link")


def prices(walk: Walk) -> dict[str, float]:
    """Return title → price of the products in the list on this page."""
    prices, title = {}, ""
    for element in walk.elements:
        if element.role == "link" and re.fullmatch(r"/catalogue/[a-z-]+_\d+/", element.url):
            title = element.name
        elif title and re.fullmatch(r"\$[\d,]+\.\d\d", element.value):
            prices[title] = float(element.value[1:].replace(",", ""))
    return prices


def fill_basket(walk: Walk, title: str, number: int) -> str | None:
    """Return the next action to put a product into the basket, or ``None`` when the basket shows this number of it."""
    if walk.path != "/basket/":
        full = next((element for element in walk.elements if re.fullmatch(r"Basket \([1-9]\d*\)", element.name)), None)
        if full is not None:
            return f"click [{full.ref}]"
        return at_product(walk, title) or walk.click("Add to cart", "button")
    return set_quantity(walk, title, number)


def set_quantity(walk: Walk, title: str, number: int) -> str | None:
    """Return the next action to change a quantity in the basket, or ``None`` when that has been done."""
    wanted = walk.behind(title, "spinbutton")
    if wanted.value != str(number):
        return f"type [{wanted.ref}] [{number}] [0]"
    last = next((action for action in reversed(walk.actions) if action.startswith(("type", "click"))), "")
    if last == f"type [{wanted.ref}] [{number}] [0]":
        return f"click [{walk.behind(title, 'button', 'Update').ref}]"
    return None


def buy(title: str, number: int, to: Address, is_known: bool) -> Plan:
    """Return the plan to order a product, to a known address or to a new one."""

    def plan(walk: Walk) -> str:
        if walk.path.startswith("/checkout/thank-you"):
            return "stop []"
        if walk.path.startswith("/checkout/preview"):
            return walk.click("Place order", "button")
        if walk.path.startswith("/checkout/payment"):
            return walk.click("Continue")
        if walk.path.startswith("/checkout/shipping-address") and is_known:
            return f"click [{walk.behind(to.line1, 'button', 'Ship to this address').ref}]"
        if walk.path.startswith("/checkout/shipping-address"):
            return walk.fill(address_fields(to), "Continue")
        return fill_basket(walk, title, number) or walk.click("Proceed to checkout", "link")

    return plan


def address_fields(address: Address, country: bool = False) -> dict[str, str]:
    """Return the fields of the form of an address."""
    fields = {
        "First name": address.first,
        "Last name": address.last,
        "First line of address": address.line1,
        "City": address.town,
        "State/County": address.state,
        "Post/Zip-code": address.postcode,
    }
    return {**fields, "Country": "United States"} if country else fields
