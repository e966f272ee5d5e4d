"""How the oracle of the forum acts. Every plan decides from the page on which it is, and from what it has seen."""

import re
from collections.abc import Mapping, Sequence

from palestra.worlds.web.sites.errands import NotShown, Plan, Walk
from palestra.worlds.web.snapshot import Element

__all__ = [
    "at_topic",
    "click_below",
    "comment_counts",
    "comment_link",
    "first_author",
    "left",
    "likes",
    "open_topic",
    "replying",
    "said",
    "search_for",
]

_BOX = "Search the forum"
_STARTER = "Original Poster"


def open_topic(walk: Walk, title: str) -> bool:
    """Return whether the page is that of a topic."""
    return re.fullmatch(rf"/topic/(private/)?\d+/{title.lower().replace(' ', '-')}/", walk.path) is not None


def at_topic(walk: Walk, title: str) -> str | None:
    """Return the next action on the way to a topic, or ``None`` if it is open."""
    if open_topic(walk, title):
        return None
    link = walk.find(title, "link")
    return f"click [{link.ref}]" if link else f"type [{walk.need(_BOX, 'searchbox').ref}] [{title}] [1]"


def comment_link(walk: Walk, author: str, pattern: str) -> Element | None:
    """Return the link below a comment of ``author`` whose name has ``pattern``."""
    current = ""
    for element in walk.elements:
        member = re.fullmatch(r"/user/\d+/([a-z]+)/", element.url)
        if member and element.name != "My profile":
            current = member[1]
        elif current == author.lower() and element.role == "link" and re.fullmatch(pattern, element.name):
            return element
    return None


def click_below(walk: Walk, author: str, pattern: str) -> str:
    """Return the action that clicks this link."""
    link = comment_link(walk, author, pattern)
    if link is None:
        raise NotShown(f"no comment of {author} on {walk.here.address} has the link {pattern!r}")
    return f"click [{link.ref}]"


def first_author(walk: Walk) -> str:
    """Return who has started the topic of this page."""
    for element in walk.elements:
        if element.role == "link" and element.name.endswith(_STARTER):
            return element.name.removesuffix(_STARTER).strip()
    raise NotShown(f"no comment on {walk.here.address} is by the author of the topic")


def likes(walk: Walk) -> dict[str, int]:
    """Return author → likes of the comments on this page."""
    counts, current = {}, ""
    for element in walk.elements:
        if re.fullmatch(r"/user/\d+/[a-z]+/", element.url):
            current = element.name.removesuffix(_STARTER).strip()
        elif liked := re.fullmatch(r"like \((\d+)\)", element.name):
            counts[current] = int(liked[1])
    return counts


def comment_counts(walk: Walk) -> dict[str, int]:
    """Return title → number of comments of the topics in all lists that were seen."""
    counts, title = {}, ""
    for seen in walk.seen:
        for element in seen.elements:
            if element.role == "link" and element.url.startswith(("/topic/", "/comment/bookmark/")):
                title = element.name
            elif title and element.role == "generic" and element.value.isdigit():
                counts[title], title = int(element.value), ""
    return counts


def said(walk: Walk, text: str) -> bool:
    """Return whether a comment on this page has the text."""
    return any(element.role == "paragraph" and text in element.value for element in walk.elements)


def left(walk: Walk, part: str) -> bool:
    """Return whether the page before this one had ``part`` in its address and this one has not: a form was sent."""
    addresses = [seen.address for seen in walk.seen]
    return len(addresses) > 1 and part in addresses[-2] and part not in addresses[-1]


def search_for(walk: Walk, titles: Sequence[str], counts: Mapping[str, int]) -> str:
    """Return the search for the first topic that no list has shown yet, or an empty string."""
    missing = next((title for title in titles if title not in counts), None)
    return "" if missing is None else f"type [{walk.need(_BOX, 'searchbox').ref}] [{missing}] [1]"


def replying(title: str, words: str) -> Plan:
    """Return the plan to write a comment in a topic."""

    def plan(walk: Walk) -> str:
        if action := at_topic(walk, title):
            return action
        if said(walk, words):
            return "stop []"
        return walk.fill({"Write comment...": words}, "Publish")

    return plan
