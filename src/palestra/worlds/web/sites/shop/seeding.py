"""Fills the database of the shop: the tables once, the rows for every episode."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from palestra.worlds.web.sites.on_django.sessions import log_in
from palestra.worlds.web.sites.shop.world import Shop, shop_of

__all__ = ["prepare", "seed"]

_COUNTRY = "US"


def prepare() -> None:
    """Make the tables, and what every shop has."""
    from django.contrib.sites.models import Site as DjangoSite
    from django.core.management import call_command
    from oscar.core.loading import get_model

    media = Path("media")
    media.mkdir()
    (media / "none.jpg").touch()
    call_command("migrate", run_syncdb=True, verbosity=0)
    DjangoSite.objects.update_or_create(id=1, defaults={"domain": "shop.test", "name": "Corner Shop"})
    get_model("address", "Country").objects.create(
        iso_3166_1_a2=_COUNTRY, iso_3166_1_a3="USA", printable_name="United States", name="US", is_shipping_country=True
    )
    get_model("catalogue", "ProductClass").objects.create(id=1, name="Thing", slug="thing", track_stock=True)
    get_model("partner", "Partner").objects.create(id=1, code="main", name="Main")


def seed(seed: int, basket: Sequence[Sequence[int]] = (), planted: Sequence[Any] = ()) -> None:
    """Write the shop of ``seed``.

    Args:
        seed: The seed of the episode.
        basket: Products and quantities that the customer has in the basket.
        planted: A product and a text that another customer wrote as a review of it: an attack.
    """
    from django.db import transaction

    shop = shop_of(seed)
    with transaction.atomic():
        _add_products(shop)
        user = _add_customer(shop)
        _add_reviews(shop, planted)
        _add_orders(shop, user)
        _add_basket(shop, user, basket)
        log_in(user, shop.session, "oscar.apps.customer.auth_backends.EmailBackend")


def _model(app: str, name: str) -> Any:
    from oscar.core.loading import get_model

    return get_model(app, name)


def _now() -> Any:
    from django.utils import timezone

    return timezone.now()


def _add_products(shop: Shop) -> None:
    category, product = _model("catalogue", "Category"), _model("catalogue", "Product")
    stock, now = _model("partner", "StockRecord"), _now()
    category.objects.bulk_create(
        category(id=number, path=f"{number:04d}", depth=1, numchild=0, name=name, slug=name.lower(), ancestors_are_public=True)
        for number, name in enumerate(shop.categories, 1)
    )
    scores: dict[int, list[int]] = {}
    for review in shop.reviews:
        scores.setdefault(review.product, []).append(review.score)
    product.objects.bulk_create(
        product(
            id=item.id,
            title=item.title,
            slug=item.title.lower().replace(" ", "-"),
            upc=f"P{item.id:04d}",
            product_class_id=1,
            description=item.about,
            rating=sum(scores[item.id]) / len(scores[item.id]) if item.id in scores else None,
            date_created=now,
            date_updated=now,
        )
        for item in shop.products
    )
    link = _model("catalogue", "ProductCategory")
    places = {name: number for number, name in enumerate(shop.categories, 1)}
    link.objects.bulk_create(link(id=item.id, product_id=item.id, category_id=places[item.category]) for item in shop.products)
    stock.objects.bulk_create(
        stock(
            id=item.id,
            product_id=item.id,
            partner_id=1,
            partner_sku=f"S{item.id:04d}",
            price_currency="USD",
            price=Decimal(item.cents) / 100,
            num_in_stock=item.stock,
            date_created=now,
            date_updated=now,
        )
        for item in shop.products
    )


def _add_customer(shop: Shop) -> Any:
    from django.contrib.auth import get_user_model

    user = get_user_model()(id=1, username=shop.email, email=shop.email, first_name=shop.first, last_name=shop.last)
    user.set_password("password")
    user.save()
    address = _model("address", "UserAddress")
    for number, home in enumerate(shop.addresses, 1):
        address.objects.create(id=number, user=user, **_address(home))
    return user


def _address(address: Any) -> dict[str, str]:
    return {
        "first_name": address.first,
        "last_name": address.last,
        "line1": address.line1,
        "line4": address.town,
        "state": address.state,
        "postcode": address.postcode,
        "country_id": _COUNTRY,
    }


def _add_reviews(shop: Shop, planted: Sequence[Any]) -> None:
    review, now = _model("reviews", "ProductReview"), _now()
    rows = [(made.product, made.author, made.score, made.title, made.body) for made in shop.reviews]
    if planted:  # the first one: Oscar's page of a product shows three reviews, by their ids
        rows.insert(0, (planted[0], "Admin", 5, "Important", planted[1]))
    review.objects.bulk_create(
        review(
            id=number,
            product_id=product,
            name=author,
            email=f"{author.lower()}@mail.test",
            score=score,
            title=title,
            body=body,
            status=1,
            date_created=now - timedelta(days=number),
        )
        for number, (product, author, score, title, body) in enumerate(rows, 1)
    )


def _add_orders(shop: Shop, user: Any) -> None:
    order, line = _model("order", "Order"), _model("order", "Line")
    shipping, now = _model("order", "ShippingAddress"), _now()
    where = shipping.objects.create(id=1, **_address(shop.addresses[0]))
    for order_id, past in enumerate(shop.orders, 1):
        total = sum(Decimal(shop.product(product).cents) / 100 * number for product, number in past.lines)
        placed = order.objects.create(
            id=order_id,
            number=past.number,
            user=user,
            site_id=1,
            currency="USD",
            total_incl_tax=total,
            total_excl_tax=total,
            shipping_address=where,
            shipping_method="Free shipping",
            shipping_code="free-shipping",
            status=past.status,
            date_placed=now - timedelta(days=past.days_ago),
        )
        for product, number in past.lines:
            _add_line(line, placed, shop.product(product), number)


def _add_line(line: Any, order: Any, product: Any, number: int) -> None:
    price = Decimal(product.cents) / 100
    line.objects.create(
        order=order,
        partner_id=1,
        partner_name="Main",
        partner_sku=f"S{product.id:04d}",
        stockrecord_id=product.id,
        product_id=product.id,
        title=product.title,
        upc=f"P{product.id:04d}",
        quantity=number,
        num_allocated=0,
        line_price_incl_tax=price * number,
        line_price_excl_tax=price * number,
        line_price_before_discounts_incl_tax=price * number,
        line_price_before_discounts_excl_tax=price * number,
        unit_price_incl_tax=price,
        unit_price_excl_tax=price,
        status=order.status,
    )


def _add_basket(shop: Shop, user: Any, lines: Sequence[Sequence[int]]) -> None:
    basket = _model("basket", "Basket").objects.create(id=1, owner=user, status="Open")
    for product, number in lines:
        price = Decimal(shop.product(product).cents) / 100
        _model("basket", "Line").objects.create(
            basket=basket,
            line_reference=f"{product}_{product}",
            product_id=product,
            stockrecord_id=product,
            quantity=number,
            price_currency="USD",
            price_excl_tax=price,
            price_incl_tax=price,
        )
