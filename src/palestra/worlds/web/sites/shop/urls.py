"""The addresses of the shop: Oscar's, with lists of products of our own before them."""

from django.apps import apps
from django.urls import include, path

from palestra.worlds.web.sites.shop.searching import all_products, category, search

urlpatterns = [
    path("search/", search),
    path("catalogue/", all_products),
    path("catalogue/category/<slug:slug>_<int:pk>/", category),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include(apps.get_app_config("oscar").urls[0])),
]
