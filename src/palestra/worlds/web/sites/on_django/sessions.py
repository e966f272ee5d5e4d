"""Users that are logged in when an episode begins."""

from typing import Any

__all__ = ["log_in"]


def log_in(user: Any, key: str, backend: str) -> None:
    """Store a session of ``user``. A browser that has the cookie ``sessionid`` with this key is logged in."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    store = SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = backend
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store._session_key = key
    store.save(must_create=True)
