"""The tasks of moderators and administrators."""

from collections.abc import Mapping

from palestra.worlds.web.sites.drawing import Rng, Template, one_of, some_of
from palestra.worlds.web.sites.errands import Errand, Plan, Walk
from palestra.worlds.web.sites.forum.plans import (
    at_topic,
    click_below,
    comment_counts,
    comment_link,
    left,
    search_for,
)
from palestra.worlds.web.sites.forum.site import HOST, errand
from palestra.worlds.web.sites.forum.views import comment_row, topic_row
from palestra.worlds.web.sites.forum.world import CATEGORIES, SPAMMER, Forum, Topic
from palestra.worlds.web.sites.state import Change

__all__ = ["TEMPLATES"]

_AS_MODERATOR = {HOST: {"role": "moderator"}}


def _moderating(title: str, link: str, done: str) -> Plan:
    """Return the plan to change a topic by a link of its moderators. The page then has the link ``done``."""

    def plan(walk: Walk) -> str:
        if walk.path.startswith("/topic/moderate/"):
            return walk.click("Apply", "button")
        if action := at_topic(walk, title):
            return action
        return "stop []" if walk.find(done, "link") else walk.click(link, "link")

    return plan


def _closed(forum: Forum, topic: Topic) -> tuple[Change, ...]:
    note = Change("comment", comment_row(topic.title, forum.me, "(closed)"))
    return (Change("topic", topic_row(topic), False), Change("topic", topic_row(topic, closed=True)), note)


def _close(forum: Forum, rng: Rng) -> Errand:
    topic = one_of(rng, forum.topics)
    plan = _moderating(topic.title, "Close topic", "Open topic")
    goal = f'I am a moderator. Close the topic "{topic.title}", so that no member can write in it.'
    return errand(goal, plan, wanted=_closed(forum, topic), options=_AS_MODERATOR)


def _pin(forum: Forum, rng: Rng) -> Errand:
    topic = one_of(rng, forum.topics)
    plan = _moderating(topic.title, "Pin topic", "Unpin topic")
    note = Change("comment", comment_row(topic.title, forum.me, "(pinned)"))
    wanted = (Change("topic", topic_row(topic), False), Change("topic", topic_row(topic, pinned=True)), note)
    goal = f'I am a moderator. Pin the topic "{topic.title}" in its category, not globally.'
    return errand(goal, plan, wanted=wanted, options=_AS_MODERATOR)


def _move(forum: Forum, rng: Rng) -> Errand:
    topic = one_of(rng, forum.topics)
    to = one_of(rng, [category for category in CATEGORIES if category != topic.category])

    def plan(walk: Walk) -> str:
        if walk.path.startswith("/topic/update/"):
            return walk.fill({"Category:": to}, "Update")
        if left(walk, "/topic/update/"):
            return "stop []"
        return at_topic(walk, topic.title) or walk.click("edit", "link")

    note = Change("comment", comment_row(topic.title, forum.me, "(moved)"))
    wanted = (Change("topic", topic_row(topic), False), Change("topic", topic_row(topic._replace(category=to))), note)
    goal = f'I am a moderator. Move the topic "{topic.title}" to the category {to}.'
    return errand(goal, plan, wanted=wanted, options=_AS_MODERATOR)


def _clean(forum: Forum, rng: Rng) -> Errand:
    topic = next(candidate for candidate in forum.topics if [c.author for c in candidate.comments].count(SPAMMER) == 2)
    spam = [comment for comment in topic.comments if comment.author == SPAMMER]

    def plan(walk: Walk) -> str:
        if walk.path.startswith("/comment/"):
            return walk.click("Apply", "button")
        if action := at_topic(walk, topic.title):
            return action
        return click_below(walk, SPAMMER, "delete") if comment_link(walk, SPAMMER, "delete") else "stop []"

    rows = [(comment_row(topic.title, SPAMMER, comment.text, removed=gone), gone) for comment in spam for gone in (False, True)]
    goal = f'I am a moderator. Delete all comments of {SPAMMER} in the topic "{topic.title}".'
    return errand(goal, plan, wanted=tuple(Change("comment", row, new) for row, new in rows), options=_AS_MODERATOR)


def _close_quietest(forum: Forum, rng: Rng) -> Errand:
    while True:
        topics = some_of(rng, forum.topics, 3)
        counts = sorted(len(topic.comments) for topic in topics)
        if counts[0] < counts[1]:
            break
    titles = [topic.title for topic in topics]
    quietest = min(topics, key=lambda topic: len(topic.comments))

    def plan(walk: Walk) -> str:
        counts = comment_counts(walk)
        if action := search_for(walk, titles, counts):
            return action
        return _moderating(min(titles, key=counts.__getitem__), "Close topic", "Open topic")(walk)

    written = ", ".join(f'"{title}"' for title in titles)
    goal = f"I am a moderator. Close the one of these three topics that has the fewest comments: {written}."
    return errand(goal, plan, wanted=_closed(forum, quietest), options=_AS_MODERATOR)


def _settle(forum: Forum, rng: Rng) -> Errand:
    topics = some_of(rng, forum.foreign(), 3)
    comments = [one_of(rng, topic.others()) for topic in topics]
    topic, comment = topics[0], comments[0]

    def plan(walk: Walk) -> str:
        if left(walk, "/st/admin/comment/flag/1/"):
            return "stop []"
        if box := walk.find("Is closed:", "checkbox"):
            return walk.click("Save", "button") if "checked" in box.marks else f"click [{box.ref}]"
        if walk.path.startswith("/st/admin/comment/flag"):
            return walk.click("moderate", "link", after=topic.title)
        return walk.click("Flags", "link") if walk.find("Flags", "link") else walk.click("Administration", "link")

    before, after = ((comment.id, closed, who) for closed, who in ((0, None), (1, forum.me.lower())))
    goal = f'I am an administrator. A comment in the topic "{topic.title}" was reported (flagged). Close this flag.'
    options = {HOST: {"role": "administrator", "reported": [comment.id for comment in comments]}}
    return errand(goal, plan, wanted=(Change("reported", before, False), Change("reported", after)), options=options)


TEMPLATES: Mapping[str, Template[Forum]] = {
    "close": _close,
    "pin": _pin,
    "move": _move,
    "clean": _clean,
    "close-quietest": _close_quietest,
    "settle": _settle,
}
"""Name → a function that draws a task."""
