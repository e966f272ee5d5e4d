"""What counts as the state of the forum, in the words of its members."""

from palestra.worlds.web.sites.forum.world import Comment, Forum, Topic
from palestra.worlds.web.sites.state import Change, Row, Views

__all__ = [
    "VIEWS",
    "comment_row",
    "like_row",
    "posted",
    "profile_row",
    "renamed",
    "reported",
    "topic_row",
    "watch_row",
]

_NOTIFY = 25
"""Spirit's default: mail never, but for mentions and replies."""
_COMMENT = """spirit_comment_comment c JOIN auth_user u ON u.id = c.user_id JOIN spirit_topic_topic t ON t.id = c.topic_id"""
VIEWS: Views = {
    "topic": """SELECT t.title, u.username, k.title, t.is_pinned, t.is_globally_pinned, t.is_closed, t.is_removed
        FROM spirit_topic_topic t JOIN auth_user u ON u.id = t.user_id
        JOIN spirit_category_category k ON k.id = t.category_id""",
    "comment": f"""SELECT t.title, u.username, CASE c.action WHEN 0 THEN c.comment WHEN 1 THEN '(moved)' WHEN 2 THEN '(closed)'
        WHEN 3 THEN '(reopened)' WHEN 4 THEN '(pinned)' ELSE '(unpinned)' END, c.is_removed FROM {_COMMENT}""",  # noqa: S608 - constants of this module
    "like": """SELECT u.username, l.comment_id FROM spirit_comment_like_commentlike l JOIN auth_user u ON u.id = l.user_id""",
    "report": """SELECT u.username, f.comment_id, f.reason, f.body FROM spirit_comment_flag_flag f
        JOIN auth_user u ON u.id = f.user_id""",
    "reported": """SELECT f.comment_id, f.is_closed, m.username FROM spirit_comment_flag_commentflag f
        LEFT JOIN auth_user m ON m.id = f.moderator_id""",
    "watch": """SELECT u.username, t.title FROM spirit_topic_notification_topicnotification n
        JOIN auth_user u ON u.id = n.user_id JOIN spirit_topic_topic t ON t.id = n.topic_id WHERE n.is_active""",
    "invited": """SELECT u.username, t.title FROM spirit_topic_private_topicprivate p JOIN auth_user u ON u.id = p.user_id
        JOIN spirit_topic_topic t ON t.id = p.topic_id""",
    "favorite": "SELECT user_id, topic_id FROM spirit_topic_favorite_topicfavorite",
    "vote": "SELECT v.voter_id, v.choice_id FROM spirit_comment_poll_commentpollvote v WHERE NOT v.is_removed",
    "poll": "SELECT p.comment_id, p.name, p.close_at IS NULL FROM spirit_comment_poll_commentpoll p WHERE NOT p.is_removed",
    "profile": """SELECT u.username, p.nickname, p.location, p.timezone, p.notify, p.avatar, p.is_administrator, p.is_moderator,
        p.is_verified FROM spirit_user_userprofile p JOIN auth_user u ON u.id = p.user_id""",
    "login": "SELECT id, username, email, password, first_name, last_name, is_active, is_staff FROM auth_user",
    "category": """SELECT title, description, parent_id, color, is_global, is_closed, is_removed, is_private
        FROM spirit_category_category""",
    "setting": "SELECT key, value FROM djconfig_config WHERE key != '_updated_at'",
}


def topic_row(topic: Topic, *, pinned: bool = False, closed: bool = False) -> Row:
    """Return the row of a topic."""
    return (topic.title, topic.author.lower(), topic.category, int(pinned), 0, int(closed), 0)


def comment_row(topic: str, author: str, text: str, *, removed: bool = False) -> Row:
    """Return the row of a comment. A note of the forum, such as "(closed)", is a comment too."""
    return (topic, author.lower(), text, int(removed))


def watch_row(member: str, topic: str) -> Row:
    """Return the row of a member who gets a notification of every comment in a topic."""
    return (member.lower(), topic)


def posted(forum: Forum, topic: str, text: str) -> tuple[Change, ...]:
    """Return what a comment in a topic changes. Its author is notified of the next ones."""
    return (Change("comment", comment_row(topic, forum.me, text)), Change("watch", watch_row(forum.me, topic)))


def like_row(forum: Forum, comment: Comment) -> Row:
    """Return the row of a comment that the member likes."""
    return (forum.me.lower(), comment.id)


def reported(forum: Forum, comment: Comment, reason: int, words: str) -> tuple[Change, ...]:
    """Return what a report changes."""
    return (
        Change("report", (forum.me.lower(), comment.id, reason, words)),
        Change("reported", (comment.id, 0, None)),
    )


def profile_row(forum: Forum, location: str = "") -> Row:
    """Return the row of the member's profile."""
    return (forum.me.lower(), forum.me, location, "UTC", _NOTIFY, "", 0, 0, 1)


def renamed(topic: Topic, title: str) -> tuple[Change, ...]:
    """Return what another title of a topic changes: every row that names the topic."""
    return tuple(
        Change(view, row, new)
        for version, new in ((topic, False), (topic._replace(title=title), True))
        for view, row in _rows_with_title(version)
    )


def _rows_with_title(topic: Topic) -> list[tuple[str, Row]]:
    rows: list[tuple[str, Row]] = [("topic", topic_row(topic))]
    rows += [("comment", comment_row(topic.title, comment.author, comment.text)) for comment in topic.comments]
    rows += [("watch", watch_row(author, topic.title)) for author in {comment.author: 0 for comment in topic.comments}]
    return rows
