"""What the shop of a seed has: products, reviews, a customer with addresses and orders. The site and the tasks read it."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from palestra.foundation.seeding import derive
from palestra.worlds.web.sites.drawing import FIRST_NAMES, one_of, session_key

__all__ = ["Address", "Order", "Product", "Review", "Shop", "money", "new_address", "other_town", "shop_of"]

_LAST = ("Lopez", "Keller", "Novak", "Okafor", "Silva", "Haas", "Moreau", "Tanaka", "Berg", "Rossi", "Dunn", "Petrov")
_STREETS = ("Mill Lane", "Station Road", "Oak Street", "Harbor Way", "Church Hill", "Park Avenue", "Bridge Street", "Elm Court")
_TOWNS = ("Ashford", "Brookdale", "Calder", "Dunmore", "Eastvale", "Fairhaven", "Glenfield", "Harwick", "Kingsport", "Larkspur")
_ADJECTIVES = (
    *("Quiet", "Folding", "Vintage", "Compact", "Solar", "Striped", "Heavy", "Slim", "Rustic", "Nordic", "Curved", "Travel"),
    *("Round", "Tall", "Bright", "Woven"),
)
_MATERIALS = ("Oak", "Steel", "Glass", "Copper", "Linen", "Bamboo", "Marble", "Cork", "Wool", "Brass")
_NOUNS = {
    "Kitchen": ("Kettle", "Mug", "Tray", "Bowl", "Ladle"),
    "Lighting": ("Lamp", "Lantern", "Candle", "Sconce", "Torch"),
    "Office": ("Desk", "Clock", "Stapler", "Folder", "Easel"),
    "Garden": ("Shovel", "Bench", "Planter", "Hose", "Trellis"),
}
_PRAISE = ("Works as described", "Nice for the price", "Sturdy and simple", "Better than expected", "Arrived on time")
_BLAME = ("Broke after a week", "Smaller than it looks", "Not worth the money", "Arrived scratched", "Too noisy for me")
PER_CATEGORY = 14


class Product(NamedTuple):
    """A product on sale."""

    id: int
    title: str
    category: str
    cents: int
    stock: int
    about: str


class Review(NamedTuple):
    """A review by another customer."""

    product: int
    author: str
    score: int
    title: str
    body: str


class Address(NamedTuple):
    """An address in the book of the customer."""

    first: str
    last: str
    line1: str
    town: str
    state: str
    postcode: str


class Order(NamedTuple):
    """A past order of the customer."""

    number: str
    lines: tuple[tuple[int, int], ...]
    """Products and quantities."""
    days_ago: int
    status: str


class Shop(NamedTuple):
    """The shop of one seed."""

    products: tuple[Product, ...]
    reviews: tuple[Review, ...]
    first: str
    last: str
    email: str
    addresses: tuple[Address, ...]
    orders: tuple[Order, ...]
    session: str
    """The key of the session in which the customer is logged in."""

    def product(self, id: int) -> Product:
        """Return a product by its id."""
        return self.products[id - 1]

    def of(self, category: str) -> list[Product]:
        """Return the products of a category."""
        return [product for product in self.products if product.category == category]

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(_NOUNS)


def money(cents: int) -> str:
    """Return an amount as the shop writes it."""
    return f"${cents // 100:,}.{cents % 100:02d}"


@lru_cache(maxsize=8)
def shop_of(seed: int) -> Shop:
    """Return the shop of ``seed``."""
    rng = derive(seed, "shop")
    products = _products(rng)
    first, last = one_of(rng, FIRST_NAMES), one_of(rng, _LAST)
    orders = tuple(_order(rng, number, products) for number in range(4))
    addresses = _addresses(rng, first, last)
    session = session_key(rng)
    email = f"{first}.{last}@mail.test".lower()
    return Shop(products, _reviews(rng, products, first), first, last, email, addresses, orders, session)


def _products(rng: np.random.Generator) -> tuple[Product, ...]:
    made: list[Product] = []
    prices = (rng.choice(30_000, size=len(_NOUNS) * PER_CATEGORY, replace=False) + 400).tolist()  # no two alike
    for category, nouns in _NOUNS.items():
        size = len(_ADJECTIVES) * len(_MATERIALS) * len(nouns)
        for pick in rng.choice(size, size=PER_CATEGORY, replace=False).tolist():
            described, noun = divmod(pick, len(nouns))
            adjective, material = divmod(described, len(_MATERIALS))
            title = f"{_ADJECTIVES[adjective]} {_MATERIALS[material]} {nouns[noun]}"
            stock = int(rng.integers(5, 60))
            about = f"Made of {_MATERIALS[material].lower()}. Weight: {int(rng.integers(2, 90)) * 100} g."
            made.append(Product(len(made) + 1, title, category, prices[len(made)], stock, about))
    return tuple(made)


def _reviews(rng: np.random.Generator, products: tuple[Product, ...], customer: str) -> tuple[Review, ...]:
    made = []
    others = [name for name in FIRST_NAMES if name != customer]
    for product in products:
        for number in rng.choice(len(others), size=int(rng.integers(0, 4)), replace=False).tolist():
            score = int(rng.integers(1, 6))
            title = one_of(rng, _PRAISE if score > 3 else _BLAME)
            made.append(Review(product.id, others[number], score, title, f"{title}. I have had it for a month."))
    return tuple(made)


def _addresses(rng: np.random.Generator, first: str, last: str) -> tuple[Address, ...]:
    towns = rng.choice(len(_TOWNS), size=3, replace=False).tolist()
    return tuple(new_address(rng, first, last, _TOWNS[town]) for town in towns)


def new_address(rng: np.random.Generator, first: str, last: str, town: str) -> Address:
    """Draw an address in ``town``."""
    street = f"{int(rng.integers(1, 200))} {one_of(rng, _STREETS)}"
    return Address(first, last, street, town, one_of(rng, ("IL", "OH", "TX", "ME")), str(int(rng.integers(10_000, 99_999))))


def other_town(shop: Shop, rng: np.random.Generator) -> str:
    """Draw a town in which the customer has no address."""
    return one_of(rng, tuple(town for town in _TOWNS if town not in {address.town for address in shop.addresses}))


def _order(rng: np.random.Generator, number: int, products: tuple[Product, ...]) -> Order:
    chosen = rng.choice(len(products), size=int(rng.integers(1, 4)), replace=False).tolist()
    lines = tuple((products[index].id, int(rng.integers(1, 4))) for index in chosen)
    return Order(str(100_101 + number), lines, 5 + 30 * number + int(rng.integers(20)), one_of(rng, ("Pending", "Shipped")))
