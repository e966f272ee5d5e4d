"""The addresses of the forum: Spirit's, with a search of our own before them."""

from django.urls import include, path

from palestra.worlds.web.sites.forum.searching import search

urlpatterns = [path("search/", search), path("", include("spirit.urls"))]
