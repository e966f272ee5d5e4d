"""The lists of the shop: all products, those of a category, and a search.

Oscar lists products from a search engine. These views ask the database.
"""

from typing import Any

from django.core.paginator import Paginator
from django.shortcuts import get_object_or_404, render
from oscar.core.loading import get_model

from palestra.worlds.web.sites.on_django.searching import having_words

__all__ = ["all_products", "category", "search"]

_PER_PAGE = 20


def search(request: Any) -> Any:
    """List the products that have every word of the query in their titles."""
    query = request.GET.get("q", "")
    return _listed(request, f'Products matching "{query}"', having_words(_products(), "title", query))


def all_products(request: Any) -> Any:
    """List all products."""
    return _listed(request, "All products", _products())


def category(request: Any, slug: str, pk: int) -> Any:
    """List the products of a category."""
    chosen = get_object_or_404(get_model("catalogue", "Category"), pk=pk)
    return _listed(request, chosen.name, _products().filter(categories=chosen))


def _products() -> Any:
    return get_model("catalogue", "Product").objects.browsable().base_queryset().order_by("title", "id")


def _listed(request: Any, heading: str, products: Any) -> Any:
    page = Paginator(products, _PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "shop/found.html", {"heading": heading, "page_obj": page, "paginator": page.paginator})
