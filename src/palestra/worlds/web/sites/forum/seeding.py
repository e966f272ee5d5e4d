"""Fills the database of the forum: the tables once, the rows for every episode."""

from collections.abc import Sequence
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Any

from palestra.worlds.web.sites.forum.world import CATEGORIES, SPAMMER, Forum, forum_of
from palestra.worlds.web.sites.on_django.sessions import log_in

__all__ = ["PLANTER", "prepare", "seed"]

PLANTER = "Service"
"""The member who writes the planted comment."""
_ROLES = {"member": {}, "moderator": {"is_moderator": True}, "administrator": {"is_moderator": True, "is_administrator": True}}


def prepare() -> None:
    """Make the tables, and what every forum has."""
    from django.core.management import call_command
    from spirit.category.models import Category

    Path("media").mkdir()
    call_command("migrate", run_syncdb=True, verbosity=0)
    Category.objects.create(id=1, title="Private", is_private=True)
    for number, name in enumerate(CATEGORIES, 2):
        Category.objects.create(id=number, title=name, description=f"Everything about {name.lower()}")


def seed(seed: int, role: str = "member", reported: Sequence[int] = (), planted: Sequence[Any] = ()) -> None:
    """Write the forum of ``seed``.

    Args:
        seed: The seed of the episode.
        role: What the member who is logged in may do: ``member``, ``moderator`` or ``administrator``.
        reported: Comments that a member has reported as spam.
        planted: A topic and a text that another member wrote into it: an attack.
    """
    from django.db import transaction

    forum = forum_of(seed)
    with transaction.atomic():
        ids = _add_members(forum, role)
        _add_topics(forum, ids)
        _add_comments(forum, ids)
        _add_watches(forum, ids)
        _add_reports(ids, reported)
        _plant(ids, planted)


def _now() -> Any:
    from django.utils import timezone

    return timezone.now()


def _add_members(forum: Forum, role: str) -> dict[str, int]:
    from django.contrib.auth import get_user_model
    from spirit.user.models import UserProfile

    user, now = get_user_model(), _now()
    names = (*forum.members, SPAMMER, PLANTER)
    ids = {name: number for number, name in enumerate(names, 1)}
    made = [user(id=ids[name], username=name.lower(), email=f"{name.lower()}@mail.test", date_joined=now) for name in names]
    made[0].set_password("password")
    user.objects.bulk_create(made)
    UserProfile.objects.bulk_create(
        UserProfile(
            id=ids[name],
            user_id=ids[name],
            slug=name.lower(),
            nickname=name,
            last_seen=now,
            is_verified=True,
            **(_ROLES[role] if name == forum.me else {}),
        )
        for name in names
    )
    log_in(made[0], forum.session, "spirit.user.auth.backends.UsernameAuthBackend")
    return ids


def _add_topics(forum: Forum, ids: dict[str, int]) -> None:
    from django.utils.text import slugify
    from spirit.topic.models import Topic

    categories = {name: number for number, name in enumerate(CATEGORIES, 2)}
    Topic.objects.bulk_create(
        Topic(
            id=topic.id,
            user_id=ids[topic.author],
            category_id=categories[topic.category],
            title=topic.title,
            slug=slugify(topic.title),
            date=_now() - timedelta(days=topic.id, hours=9),
            last_active=_now() - timedelta(days=topic.id),
            reindex_at=_now(),
            comment_count=len(topic.comments),
        )
        for topic in forum.topics
    )


def _add_comments(forum: Forum, ids: dict[str, int]) -> None:
    from spirit.comment.like.models import CommentLike
    from spirit.comment.models import Comment

    Comment.objects.bulk_create(
        Comment(
            id=comment.id,
            user_id=ids[comment.author],
            topic_id=topic.id,
            comment=comment.text,
            comment_html=_html(comment.text),
            date=_now() - timedelta(days=topic.id, hours=9 - number),
            likes_count=len(comment.likes),
        )
        for topic in forum.topics
        for number, comment in enumerate(topic.comments)
    )
    likes = [(member, comment.id) for topic in forum.topics for comment in topic.comments for member in comment.likes]
    CommentLike.objects.bulk_create(
        CommentLike(user_id=ids[member], comment_id=comment, date=_now()) for member, comment in likes
    )


def _html(text: str) -> str:
    return f"<p>{escape(text, quote=False)}</p>"


def _add_watches(forum: Forum, ids: dict[str, int]) -> None:
    from spirit.topic.notification.models import TopicNotification

    TopicNotification.objects.bulk_create(
        TopicNotification(
            user_id=ids[comment.author], topic_id=topic.id, comment_id=comment.id, date=_now(), is_read=True, is_active=True
        )
        for topic in forum.topics
        for comment in {comment.author: comment for comment in topic.comments}.values()
    )


def _add_reports(ids: dict[str, int], comments: Sequence[int]) -> None:
    from spirit.comment.flag.models import CommentFlag, Flag

    for number, comment in enumerate(comments):
        CommentFlag.objects.create(comment_id=comment, date=_now() - timedelta(hours=number))
        Flag.objects.create(comment_id=comment, user_id=2 + number, reason=0, body="", date=_now() - timedelta(hours=number))


def _plant(ids: dict[str, int], planted: Sequence[Any]) -> None:
    from spirit.comment.models import Comment

    if planted:
        Comment.objects.create(
            user_id=ids[PLANTER],
            topic_id=planted[0],
            comment=planted[1],
            comment_html=_html(planted[1]),
            date=_now() - timedelta(days=planted[0], hours=8, minutes=30),  # the second comment of the topic
        )
