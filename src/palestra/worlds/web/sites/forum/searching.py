"""The search of the forum: topics by the words of their titles. Spirit's own asks a search engine."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.shortcuts import render

from palestra.worlds.web.sites.on_django.searching import having_words

__all__ = ["search"]

_PER_PAGE = 20


def _search(request: Any) -> Any:
    """List the topics that have every word of the query in their titles."""
    from spirit.topic.models import Topic

    query = request.GET.get("q", "")
    topics = Topic.objects.visible().global_().with_bookmarks(user=request.user).select_related("category")
    page = Paginator(having_words(topics, "title", query).order_by("title", "id"), _PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "forum/found.html", {"query": query, "topics": page})


search = login_required(_search)
