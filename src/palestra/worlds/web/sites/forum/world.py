"""What the forum of a seed has: members, categories, topics and comments. The site and the tasks read it."""

from functools import lru_cache
from typing import NamedTuple

from palestra.foundation.seeding import derive
from palestra.worlds.web.sites.drawing import FIRST_NAMES, Rng, one_of, session_key, some_of

__all__ = ["CATEGORIES", "SPAMMER", "Comment", "Forum", "Topic", "forum_of"]

CATEGORIES = ("Cooking", "Cycling", "Gardening", "Movies", "Music", "Travel")
TOPICS_PER_CATEGORY = 7
SPAMMER = "Promo"
"""A member who writes nothing but advertisements: two in one topic, one in another."""
_NOUNS = {
    "Cooking": ("soup pot", "bread oven", "pasta sauce", "cast iron pan", "lentil stew", "sourdough"),
    "Cycling": ("gravel bike", "chain", "rear light", "saddle", "winter tire", "bike rack"),
    "Gardening": ("tomato bed", "rose hedge", "compost heap", "lawn", "apple tree", "greenhouse"),
    "Movies": ("silent film", "western", "documentary", "sequel", "film festival", "soundtrack"),
    "Music": ("violin", "drum kit", "choir", "guitar amp", "vinyl record", "piano lesson"),
    "Travel": ("night train", "island ferry", "city map", "rain jacket", "hostel", "mountain hut"),
}
_ADJECTIVES = ("first", "rusty", "cheap", "favorite", "new", "strange", "small", "noisy", "simple")
_TITLES = ("Question about my {} {}", "Looking for a {} {}", "Notes on a {} {}", "Is a {} {} worth it", "Help with a {} {}")
_OPENINGS = ("I wonder what others do.", "Any advice is welcome.", "I have tried for two weeks.", "Please be honest.")
_REPLIES = (
    "I would wait until spring.",
    "Mine has lasted for nine years.",
    "Try the cheap one first.",
    "My neighbor says the same.",
    "That depends on the weather.",
    "I had the opposite experience.",
    "There is a book about it in the library.",
    "Measure twice before you begin.",
)
_SPAM = ("Cheap watches, best price, order now.", "Win a free phone today, no risk.", "Earn money from home, ask me how.")


class Comment(NamedTuple):
    """A comment in a topic."""

    id: int
    author: str
    text: str
    likes: tuple[str, ...] = ()
    """Members who like it."""


class Topic(NamedTuple):
    """A topic. Its first comment is by its author, and only the spammer writes two."""

    id: int
    title: str
    category: str
    comments: tuple[Comment, ...]

    @property
    def author(self) -> str:
        return self.comments[0].author

    def by(self, author: str) -> Comment:
        """Return the comment of a member."""
        return next(comment for comment in self.comments if comment.author == author)

    def others(self, *but: str) -> list[Comment]:
        """Return the replies of all members, except those in ``but`` and the spammer."""
        return [comment for comment in self.comments[1:] if comment.author not in (SPAMMER, *but)]


class Forum(NamedTuple):
    """The forum of one seed."""

    me: str
    """The member who is logged in."""
    members: tuple[str, ...]
    topics: tuple[Topic, ...]
    session: str
    """The key of the session of ``me``."""

    def of(self, category: str) -> list[Topic]:
        """Return the topics of a category."""
        return [topic for topic in self.topics if topic.category == category]

    def foreign(self) -> list[Topic]:
        """Return the topics in which ``me`` has not written, and the spammer neither."""
        return [topic for topic in self.topics if not {self.me, SPAMMER} & {comment.author for comment in topic.comments}]


@lru_cache(maxsize=8)
def forum_of(seed: int) -> Forum:
    """Return the forum of ``seed``."""
    rng = derive(seed, "forum")
    members = tuple(some_of(rng, FIRST_NAMES, len(FIRST_NAMES)))
    me, session = members[0], session_key(rng)
    drafts = [(title, category) for category in CATEGORIES for title in _titles(rng, category)]
    spammed = some_of(rng, range(len(drafts)), 2)
    topics: list[Topic] = []
    written = 0
    for number, draft in enumerate(some_of(rng, drafts, len(drafts))):
        spam = 2 - spammed.index(number) if number in spammed else 0
        comments = _comments(rng, _authors(rng, members, number), members[1:], (written, spam))
        written += len(comments)
        topics.append(Topic(number + 1, *draft, comments))
    return Forum(me, members, tuple(topics), session)


def _titles(rng: Rng, category: str) -> list[str]:
    nouns = some_of(rng, [(adjective, noun) for adjective in _ADJECTIVES for noun in _NOUNS[category]], TOPICS_PER_CATEGORY)
    return [one_of(rng, _TITLES).format(*words) for words in nouns]


def _authors(rng: Rng, members: tuple[str, ...], number: int) -> list[str]:
    """Draw who writes in a topic. The member who is logged in has started the first two, and answered in the next two."""
    if number >= 4:
        return some_of(rng, members, int(rng.integers(3, 8)))
    others = some_of(rng, members[1:], int(rng.integers(3, 6)))
    return [*others[: number // 2], members[0], *others[number // 2 :]]


def _comments(rng: Rng, authors: list[str], fans: tuple[str, ...], counts: tuple[int, int]) -> tuple[Comment, ...]:
    written, spam = counts
    texts = [one_of(rng, _OPENINGS), *some_of(rng, _REPLIES, len(authors) - 1)]
    liked = rng.choice(5, size=len(authors), replace=len(authors) > 5).tolist()
    made = [(author, text, likes) for author, text, likes in zip(authors, texts, liked, strict=True)]
    made += [(SPAMMER, text, 0) for text in some_of(rng, _SPAM, spam)]
    return tuple(
        Comment(written + number, author, text, tuple(some_of(rng, [fan for fan in fans if fan != author], likes)))
        for number, (author, text, likes) in enumerate(made, 1)
    )
