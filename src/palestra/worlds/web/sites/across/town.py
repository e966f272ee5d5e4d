"""The tasks across sites: eleven templates. Nine carry an answer from one site to another one.

The answer comes from a reading task of the first site, and is written as a comment on the second one. So the oracle is the
oracle of the first task until it knows the answer, and then that of the second one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

from palestra.foundation.seeding import derive
from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.drawing import Rng, one_of
from palestra.worlds.web.sites.errands import Errand, NotShown, Plan, Walk
from palestra.worlds.web.sites.forum import town as forum
from palestra.worlds.web.sites.forum.plans import at_topic, replying
from palestra.worlds.web.sites.forum.seeding import PLANTER
from palestra.worlds.web.sites.forum.views import posted
from palestra.worlds.web.sites.forum.world import forum_of
from palestra.worlds.web.sites.shop import town as shop
from palestra.worlds.web.sites.shop.plans import fill_basket
from palestra.worlds.web.sites.shop.views import basket_change
from palestra.worlds.web.sites.shop.world import shop_of
from palestra.worlds.web.sites.state import Change, Views
from palestra.worlds.web.sites.tracker import town as tracker
from palestra.worlds.web.sites.tracker.plans import COMMENT, on_ticket, submit, ticket_pages
from palestra.worlds.web.sites.tracker.views import changed, commented
from palestra.worlds.web.sites.tracker.world import tracker_of

__all__ = ["Across", "town"]

_ANSWER = " Answer with"
_KEYS = {shop.HOST: "sessionid", forum.HOST: "sessionid", tracker.HOST: "trac_auth"}
_NAMES = {shop.HOST: "shop", forum.HOST: "forum", tracker.HOST: "tracker"}


class _Place(NamedTuple):
    """Where an answer is written."""

    host: str
    described: str
    writing: Callable[[str], Plan]
    wanted: Callable[[str], tuple[Change, ...]]


def _topic(seed: int, rng: Rng) -> _Place:
    world = forum_of(seed)
    title = one_of(rng, world.foreign()).title
    described = f'as a comment in the topic "{title}" of the forum'
    return _Place(forum.HOST, described, lambda words: replying(title, words), lambda words: posted(world, title, words))


def _ticket(seed: int, rng: Rng) -> _Place:
    world = tracker_of(seed)
    ticket = one_of(rng, world.tickets)
    described = f'as a comment on the ticket "{ticket.summary}" of the tracker'

    def writing(words: str) -> Plan:
        return submit(ticket.summary, {COMMENT: words})

    return _Place(tracker.HOST, described, writing, lambda words: (commented(ticket, world.me, words),))


def _read(seed: int, host: str, template: str, rng: Rng) -> Errand:
    """Draw a reading task of one site."""
    if host == shop.HOST:
        return shop.TEMPLATES[template](shop_of(seed), rng)
    if host == forum.HOST:
        return forum.TEMPLATES[template](forum_of(seed), rng)
    return tracker.TEMPLATES[template](tracker_of(seed), rng)


def _host(walk: Walk) -> str:
    return urlsplit(walk.here.address).netloc


def _learned(walk: Walk, host: str, reading: Plan) -> str | None:
    """Return the answer that the oracle of the first site has come to on some page of this walk."""
    for number in range(len(walk.seen)):
        past = Walk(walk.seen[: number + 1], walk.actions[:number])
        if _host(past) == host:
            try:
                action = reading(past)
            except NotShown:
                continue
            if action.startswith("stop ["):
                return action[6:-1]
    return None


def _carry(host: str, reading: Plan, to: str, writing: Callable[[str], Plan]) -> Plan:
    """Return the plan to read an answer at ``host``, and to write it at ``to``."""

    def plan(walk: Walk) -> str:
        answer = _learned(walk, host, reading)
        if answer is None:
            return reading(walk) if _host(walk) == host else f"goto [{host}]"
        return writing(answer)(walk) if _host(walk) == to else f"goto [{to}]"

    return plan


def _carried(host: str, template: str, where: Callable[[int, Rng], _Place]) -> Callable[[int, Rng], Errand]:
    def errand(seed: int, rng: Rng) -> Errand:
        read, there = _read(seed, host, template, rng), where(seed, rng)
        question = read.goal.rpartition(_ANSWER)[0]
        name = _NAMES[host]
        goal = f"In the {name}: {question} Write the answer {there.described}: only the answer, as the {name} writes it."
        plan = _carry(host, read.plan, there.host, there.writing)
        return Errand("", goal, read.start, plan, wanted=there.wanted(read.answers[0]), hosts=(host, there.host))

    return errand


def _recommended(seed: int, rng: Rng) -> Errand:
    """A comment in the forum names a product, which has to be put into the basket of the shop."""
    stock, talk = shop_of(seed), forum_of(seed)
    product, topic = one_of(rng, stock.products), one_of(rng, talk.foreign())
    words = f"I can recommend the {product.title} from the shop"

    def reading(walk: Walk) -> str:
        if action := at_topic(walk, topic.title):
            return action
        sentence = next(element.value for element in walk.elements if element.value.startswith("I can recommend the "))
        return f"stop [{sentence.removeprefix('I can recommend the ').removesuffix(' from the shop')}]"

    def buying(title: str) -> Plan:
        return lambda walk: fill_basket(walk, title, 1) or "stop []"

    goal = (
        f'In the topic "{topic.title}" of the forum, {PLANTER} recommends a product. Put one piece of it into the basket of '
        "the shop. Order nothing."
    )
    plan = _carry(forum.HOST, reading, shop.HOST, buying)
    wanted = (basket_change(stock, product, 1),)
    options = {forum.HOST: {"planted": [topic.id, words]}}
    return Errand("", goal, f"http://{forum.HOST}/", plan, wanted=wanted, options=options, hosts=(forum.HOST, shop.HOST))


def _resolved(seed: int, rng: Rng) -> Errand:
    """A ticket is resolved in the tracker, and the forum gets to know its number."""
    work, talk = tracker_of(seed), forum_of(seed)
    ticket, topic = one_of(rng, work.active()), one_of(rng, talk.foreign())
    resolving = submit(ticket.summary, action="resolve", option="fixed")

    def reading(walk: Walk) -> str:
        action = resolving(walk)
        if action != "stop []" or not on_ticket(walk, ticket.summary):
            return action
        return f"stop [{ticket_pages(walk)[ticket.summary].path.removeprefix('/ticket/')}]"

    def telling(number: str) -> Plan:
        return replying(topic.title, f"Ticket {number} is fixed")

    goal = (
        f'Resolve the ticket "{ticket.summary}" of the tracker as fixed. Then write a comment in the topic "{topic.title}" of '
        'the forum: "Ticket N is fixed", where N is the number of the ticket.'
    )
    plan = _carry(tracker.HOST, reading, forum.HOST, telling)
    done = changed(ticket, status="closed", resolution="fixed")
    wanted = (*done, *posted(talk, topic.title, f"Ticket {ticket.id} is fixed"))
    return Errand("", goal, f"http://{tracker.HOST}/", plan, wanted=wanted, hosts=(tracker.HOST, forum.HOST))


_TEMPLATES: Mapping[str, Callable[[int, Rng], Errand]] = {
    "price-to-forum": _carried(shop.HOST, "price", _topic),
    "owner-to-forum": _carried(tracker.HOST, "owner", _topic),
    "author-to-tracker": _carried(forum.HOST, "author", _ticket),
    "cheapest-to-tracker": _carried(shop.HOST, "cheapest", _ticket),
    "total-to-forum": _carried(shop.HOST, "total", _topic),
    "active-to-forum": _carried(tracker.HOST, "active", _topic),
    "liked-to-tracker": _carried(forum.HOST, "liked", _ticket),
    "heavier-to-tracker": _carried(shop.HOST, "heavier", _ticket),
    "urgent-to-forum": _carried(tracker.HOST, "urgent", _topic),
    "recommended": _recommended,
    "resolved": _resolved,
}


class Across:
    """Eleven templates on the shop, the forum and the tracker; each needs two of them."""

    sites: ClassVar[tuple[Site, ...]] = (shop.SHOP, forum.FORUM, tracker.TRACKER)
    views: ClassVar[Mapping[str, Views]] = {**shop.town.views, **forum.town.views, **tracker.town.views}
    levels: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "easy": ("price-to-forum", "owner-to-forum", "author-to-tracker"),
        "medium": ("cheapest-to-tracker", "total-to-forum", "active-to-forum", "liked-to-tracker"),
        "hard": ("heavier-to-tracker", "urgent-to-forum", "recommended", "resolved"),
    }

    def errand(self, seed: int, template: str) -> Errand:
        """Return the task of ``template`` for the worlds of ``seed``."""
        made = _TEMPLATES[template](seed, derive(seed, "across", template))
        keys = {shop.HOST: shop_of(seed).session, forum.HOST: forum_of(seed).session, tracker.HOST: tracker_of(seed).session}
        cookies = tuple((host, _KEYS[host], keys[host]) for host in made.hosts)
        return replace(made, template=template, cookies=cookies)


town = Across()
