"""What counts as the state of the shop, in the words of its customer."""

from palestra.worlds.web.sites.shop.world import Address, Product, Shop
from palestra.worlds.web.sites.state import Change, Row, Views

__all__ = ["VIEWS", "address_row", "basket_change", "order_changes", "review_row"]

_CENTS = "CAST(round({} * 100) AS INTEGER)"
VIEWS: Views = {
    "order": f"""SELECT u.email, {_CENTS.format("o.total_incl_tax")}, a.first_name, a.last_name, a.line1, a.line4, a.state,
        a.postcode, o.status FROM order_order o LEFT JOIN auth_user u ON u.id = o.user_id
        LEFT JOIN order_shippingaddress a ON a.id = o.shipping_address_id""",  # noqa: S608 - constants of this module
    "order line": f"""SELECT {_CENTS.format("o.total_incl_tax")}, l.title, l.quantity FROM order_line l
        JOIN order_order o ON o.id = l.order_id""",  # noqa: S608 - constants of this module
    "basket": """SELECT b.status, u.email, p.title, l.quantity FROM basket_line l JOIN basket_basket b ON b.id = l.basket_id
        JOIN catalogue_product p ON p.id = l.product_id LEFT JOIN auth_user u ON u.id = b.owner_id
        WHERE b.status IN ('Open', 'Saved')""",
    "address": """SELECT u.email, a.first_name, a.last_name, a.line1, a.line2, a.line3, a.line4, a.state, a.postcode,
        a.country_id, a.phone_number, a.notes, a.is_default_for_shipping, a.is_default_for_billing
        FROM address_useraddress a JOIN auth_user u ON u.id = a.user_id""",
    "review": """SELECT p.title, coalesce(u.email, r.name), r.score, r.title, r.body, r.status FROM reviews_productreview r
        JOIN catalogue_product p ON p.id = r.product_id LEFT JOIN auth_user u ON u.id = r.user_id""",
    "vote": "SELECT review_id, user_id, delta FROM reviews_vote",
    "stock": f"""SELECT p.title, {_CENTS.format("s.price")}, s.num_in_stock, coalesce(s.num_allocated, 0), p.is_public
        FROM partner_stockrecord s JOIN catalogue_product p ON p.id = s.product_id""",  # noqa: S608 - constants of this module
    "name": "SELECT email, first_name, last_name FROM auth_user",
    "login": "SELECT id, username, password, is_active, is_staff FROM auth_user",
    "wish list": """SELECT u.email, w.name, w.visibility FROM wishlists_wishlist w JOIN auth_user u ON u.id = w.owner_id""",
    "wish": """SELECT w.name, p.title, l.quantity FROM wishlists_line l JOIN wishlists_wishlist w ON w.id = l.wishlist_id
        LEFT JOIN catalogue_product p ON p.id = l.product_id""",
    "shared wish list": "SELECT email FROM wishlists_wishlistsharedemail",
    "alert": "SELECT user_id, email, product_id, status FROM customer_productalert",
}


def address_row(shop: Shop, address: Address) -> Row:
    """Return the row of an address in the customer's book."""
    inner = (address.first, address.last, address.line1, "", "", address.town, address.state, address.postcode)
    return (shop.email, *inner, "US", "", "", 0, 0)


def basket_change(shop: Shop, product: Product, number: int, new: bool = True) -> Change:
    """Return that a product is in the basket, or no longer."""
    return Change("basket", ("Open", shop.email, product.title, number), new)


def review_row(shop: Shop, product: Product, score: int, title: str, body: str) -> Row:
    """Return the row of a review by the customer."""
    return (product.title, shop.email, score, title, body, 1)


def order_changes(shop: Shop, product: Product, number: int, to: Address) -> tuple[Change, ...]:
    """Return what an order of one product changes: the order, its line, and the stock that is set apart for it."""
    total = product.cents * number
    where = (to.first, to.last, to.line1, to.town, to.state, to.postcode)
    stock = (product.title, product.cents, product.stock)
    return (
        Change("order", (shop.email, total, *where, "Pending")),
        Change("order line", (total, product.title, number)),
        Change("stock", (*stock, 0, 1), False),
        Change("stock", (*stock, number, 1)),
    )
