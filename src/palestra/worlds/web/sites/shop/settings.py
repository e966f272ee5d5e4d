"""The settings of the shop. Paths are relative: each episode has its own working folder."""

from pathlib import Path

from oscar.defaults import *  # noqa: F403

from palestra.worlds.web.sites.on_django.settings import *  # noqa: F403
from palestra.worlds.web.sites.on_django.settings import database, plain_templates

_APPS = (
    *("analytics", "checkout", "address", "shipping", "catalogue", "communication", "partner", "basket", "payment", "offer"),
    *("order", "customer", "search", "voucher", "wishlists", "dashboard"),
)
_OSCAR = {name: f"{name.title()}Config" for name in _APPS}
_OSCAR["catalogue.reviews"] = "CatalogueReviewsConfig"
_DASHBOARD = "reports users orders catalogue offers partners pages ranges reviews vouchers communications shipping"
ALLOWED_HOSTS = ["shop.test"]
LANGUAGE_CODE = "en-us"
LANGUAGES = [("en-us", "English")]
DATABASES = database("shop.sqlite")
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.sites",
    "django.contrib.flatpages",
    "oscar.config.Shop",
    *(f"oscar.apps.{name}.apps.{config}" for name, config in _OSCAR.items()),
    *(f"oscar.apps.dashboard.{name}.apps.{name.title()}DashboardConfig" for name in _DASHBOARD.split()),
    "widget_tweaks",
    "haystack",
    "treebeard",
    "django_tables2",
]
MIGRATION_MODULES = dict.fromkeys((*_APPS, "reviews", "auth", "contenttypes", "sessions", "sites", "flatpages"))
"""The tables are made as they are today, without the history of migrations, which takes minutes."""
SITE_ID = 1
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
]
AUTHENTICATION_BACKENDS = ("oscar.apps.customer.auth_backends.EmailBackend",)
ROOT_URLCONF = "palestra.worlds.web.sites.shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
OSCAR_MISSING_IMAGE_URL = "none.jpg"
TEMPLATES = plain_templates(
    str(Path(__file__).parent / "templates"),
    "oscar.apps.search.context_processors.search_form",
    "oscar.apps.checkout.context_processors.checkout",
    "oscar.apps.communication.notifications.context_processors.notifications",
    "oscar.core.context_processors.metadata",
)
OSCAR_ALLOW_ANON_CHECKOUT = False
OSCAR_DEFAULT_CURRENCY = "USD"
OSCAR_SHOP_NAME = "Corner Shop"
OSCAR_SHOP_TAGLINE = "things for the house"
OSCAR_INITIAL_ORDER_STATUS = "Pending"
OSCAR_ORDER_STATUS_PIPELINE = {"Pending": ("Shipped", "Cancelled"), "Shipped": (), "Cancelled": ()}
OSCAR_PRODUCTS_PER_PAGE = 20
OSCAR_ORDERS_PER_PAGE = 20
OSCAR_RECENTLY_VIEWED_PRODUCTS = 0
OSCAR_THUMBNAILER = "palestra.worlds.web.sites.shop.pictures.NoPictures"
