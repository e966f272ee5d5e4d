"""The tasks of members: reading and writing."""

from collections.abc import Mapping

from palestra.worlds.web.sites.drawing import Rng, Template, one_of, some_of
from palestra.worlds.web.sites.errands import Errand, Walk
from palestra.worlds.web.sites.forum.plans import (
    at_topic,
    click_below,
    comment_counts,
    comment_link,
    first_author,
    left,
    likes,
    open_topic,
    replying,
    said,
    search_for,
)
from palestra.worlds.web.sites.forum.site import HOST, errand
from palestra.worlds.web.sites.forum.views import (
    comment_row,
    like_row,
    posted,
    profile_row,
    renamed,
    reported,
    watch_row,
)
from palestra.worlds.web.sites.forum.world import CATEGORIES, Forum, Topic
from palestra.worlds.web.sites.state import Change

__all__ = ["TEMPLATES"]

_WORDS = (
    "Thank you, that helped me.",
    "I have found another way.",
    "Can you post a picture?",
    "I will report back in a month.",
    "This answers my question.",
)
_NEW_TITLES = ("Meeting on Saturday", "Looking for a partner", "A list of good shops", "What I learned this year")
_PLACES = ("Ashford", "Brookdale", "Calder", "Dunmore", "Eastvale")


def _with_reply(forum: Forum, rng: Rng) -> tuple[Topic, str]:
    """Draw a topic in which the member has not written, and the author of one of its replies."""
    topic = one_of(rng, forum.foreign())
    return topic, one_of(rng, topic.others()).author


def _mine(forum: Forum, *, started: bool) -> list[Topic]:
    topics = [topic for topic in forum.topics if any(comment.author == forum.me for comment in topic.comments)]
    return [topic for topic in topics if (topic.author == forum.me) == started]


# ------------------------------------------------------------------------------------------------------------------ reading


def _author(forum: Forum, rng: Rng) -> Errand:
    topic = one_of(rng, forum.foreign())

    def plan(walk: Walk) -> str:
        return at_topic(walk, topic.title) or f"stop [{first_author(walk)}]"

    return errand(f'Who started the topic "{topic.title}"? Answer with the name alone.', plan, answers=(topic.author,))


def _liked(forum: Forum, rng: Rng) -> Errand:
    clear = [topic for topic in forum.foreign() if [len(c.likes) for c in topic.comments].count(_most_likes(topic)) == 1]
    topic = one_of(rng, clear)
    best = max(topic.comments, key=lambda comment: len(comment.likes))

    def plan(walk: Walk) -> str:
        if action := at_topic(walk, topic.title):
            return action
        counts = likes(walk)
        return f"stop [{max(counts, key=counts.__getitem__)}]"

    goal = f'Who wrote the comment with the most likes in the topic "{topic.title}"? Answer with the name alone.'
    return errand(goal, plan, answers=(best.author,))


def _most_likes(topic: Topic) -> int:
    return max(len(comment.likes) for comment in topic.comments)


def _busier(forum: Forum, rng: Rng) -> Errand:
    while True:
        pair = some_of(rng, forum.topics, 2)
        if len(pair[0].comments) != len(pair[1].comments):
            break
    titles = [topic.title for topic in pair]

    def plan(walk: Walk) -> str:
        counts = comment_counts(walk)
        return search_for(walk, titles, counts) or f"stop [{max(titles, key=counts.__getitem__)}]"

    best = max(pair, key=lambda topic: len(topic.comments))
    goal = f'Which topic has more comments, "{titles[0]}" or "{titles[1]}"? Answer with its title alone.'
    return errand(goal, plan, answers=(best.title,))


# ------------------------------------------------------------------------------------------------------------------ writing


def _reply(forum: Forum, rng: Rng) -> Errand:
    topic, words = one_of(rng, forum.foreign()), one_of(rng, _WORDS)
    goal = f'Write a comment in the topic "{topic.title}": "{words}"'
    return errand(goal, replying(topic.title, words), wanted=posted(forum, topic.title, words))


def _answer(forum: Forum, rng: Rng) -> Errand:
    topic, asked = some_of(rng, forum.foreign(), 2)

    def plan(walk: Walk) -> str:
        for seen in walk.seen:
            if open_topic(here := Walk([seen], []), asked.title):
                return replying(topic.title, f"It was {first_author(here)}")(walk)
        return at_topic(walk, asked.title) or "stop []"

    goal = (
        f'Find out who started the topic "{asked.title}". Then write a comment in the topic "{topic.title}": "It was NAME", '
        "with this name."
    )
    return errand(goal, plan, wanted=posted(forum, topic.title, f"It was {asked.author}"))


def _start_topic(forum: Forum, rng: Rng) -> Errand:
    title, words, category = one_of(rng, _NEW_TITLES), one_of(rng, _WORDS), one_of(rng, CATEGORIES)

    def plan(walk: Walk) -> str:
        if open_topic(walk, title):
            return "stop []"
        if walk.path.startswith("/topic/publish/"):
            return walk.fill({"Title:": title, "Category:": category, "Comment:": words}, "Publish")
        return walk.click("Create Topic", "link")

    goal = f'Start a topic in the category {category} with the title "{title}" and the comment "{words}"'
    made = Change("topic", (title, forum.me.lower(), category, 0, 0, 0, 0))
    return errand(goal, plan, wanted=(made, *posted(forum, title, words)))


def _edit(forum: Forum, rng: Rng) -> Errand:
    topic, words = one_of(rng, _mine(forum, started=False)), one_of(rng, _WORDS)

    def plan(walk: Walk) -> str:
        if walk.path.startswith("/comment/"):
            return walk.fill({"Comment:": words}, "Publish")
        if action := at_topic(walk, topic.title):
            return action
        return "stop []" if said(walk, words) else click_below(walk, forum.me, "edit")

    goal = f'Change my comment in the topic "{topic.title}" to "{words}"'
    before = Change("comment", comment_row(topic.title, forum.me, topic.by(forum.me).text), False)
    return errand(goal, plan, wanted=(before, Change("comment", comment_row(topic.title, forum.me, words))))


def _rename(forum: Forum, rng: Rng) -> Errand:
    topic, title = one_of(rng, _mine(forum, started=True)), one_of(rng, _NEW_TITLES)

    def plan(walk: Walk) -> str:
        if open_topic(walk, title) or walk.find(title, "heading"):
            return "stop []"
        if walk.path.startswith("/topic/update/"):
            return walk.fill({"Title:": title}, "Update")
        if any(element.role == "text" and element.value == title for element in walk.elements):
            return "stop []"  # Spirit keeps the old title in the address
        return at_topic(walk, topic.title) or walk.click("edit", "link")

    goal = f'Change the title of my topic "{topic.title}" to "{title}"'
    return errand(goal, plan, wanted=renamed(topic, title))


def _like(forum: Forum, rng: Rng) -> Errand:
    topic, author = _with_reply(forum, rng)

    def plan(walk: Walk) -> str:
        if walk.path.startswith("/comment/like/"):
            return walk.click("Like", "button")
        if action := at_topic(walk, topic.title):
            return action
        return "stop []" if comment_link(walk, author, r"remove like.*") else click_below(walk, author, r"like .*")

    goal = f'Like the comment of {author} in the topic "{topic.title}".'
    return errand(goal, plan, wanted=(Change("like", like_row(forum, topic.by(author))),))


def _report(forum: Forum, rng: Rng) -> Errand:
    topic, author = _with_reply(forum, rng)
    reason, words = int(rng.integers(2)), one_of(rng, ("Please have a look.", "This is off topic.", "I have seen this before."))

    def plan(walk: Walk) -> str:
        if walk.path.startswith("/comment/flag/"):
            return walk.fill({"Reason:": ("Spam", "Other")[reason], "Body:": words}, "Report")
        if left(walk, "/comment/flag/"):
            return "stop []"
        return at_topic(walk, topic.title) or click_below(walk, author, "report")

    kind = ("spam", 'something else ("Other")')[reason]
    goal = f'Report the comment of {author} in the topic "{topic.title}" as {kind}. In the body, write "{words}"'
    return errand(goal, plan, wanted=reported(forum, topic.by(author), reason, words))


def _watch(forum: Forum, rng: Rng) -> Errand:
    topic = one_of(rng, forum.foreign())

    def plan(walk: Walk) -> str:
        if action := at_topic(walk, topic.title):
            return action
        return "stop []" if walk.find("Unnotify Me", "button") else walk.click("Notify Me", "button")

    goal = f'Let the forum notify me of new comments in the topic "{topic.title}".'
    return errand(goal, plan, wanted=(Change("watch", watch_row(forum.me, topic.title)),))


def _message(forum: Forum, rng: Rng) -> Errand:
    to, title, words = one_of(rng, forum.members[1:]), one_of(rng, _NEW_TITLES), one_of(rng, _WORDS)

    def plan(walk: Walk) -> str:
        if open_topic(walk, title):
            return "stop []"
        if walk.path.startswith("/topic/private/publish/"):
            return walk.fill({"Title:": title, "Invite users:": to.lower(), "Comment:": words}, "Publish")
        if walk.path.startswith("/topic/private/"):
            return walk.click("Create private topic", "link")
        return walk.click("Private topics", "link")

    goal = f'Send a private topic to {to} with the title "{title}" and the comment "{words}"'
    invited = tuple(Change(view, watch_row(member, title)) for view in ("invited", "watch") for member in (forum.me, to))
    made = Change("topic", (title, forum.me.lower(), "Private", 0, 0, 0, 0))
    return errand(goal, plan, wanted=(made, Change("comment", comment_row(title, forum.me, words)), *invited))


def _location(forum: Forum, rng: Rng) -> Errand:
    town = one_of(rng, _PLACES)

    def plan(walk: Walk) -> str:
        if left(walk, f"http://{HOST}/user/") or any("has been updated" in shown for shown in walk.texts()):
            return "stop []"
        if walk.path == "/user/":
            return walk.fill({"Location:": town}, "Save")
        return walk.click("Preferences", "link") if walk.find("Preferences", "link") else walk.click("My profile", "link")

    wanted = (Change("profile", profile_row(forum), False), Change("profile", profile_row(forum, town)))
    return errand(f"Set the location in my profile to {town}.", plan, wanted=wanted)


TEMPLATES: Mapping[str, Template[Forum]] = {
    "author": _author,
    "liked": _liked,
    "busier": _busier,
    "reply": _reply,
    "answer": _answer,
    "topic": _start_topic,
    "edit": _edit,
    "rename": _rename,
    "like": _like,
    "report": _report,
    "watch": _watch,
    "message": _message,
    "location": _location,
}
"""Name → a function that draws a task."""
