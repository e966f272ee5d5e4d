"""Logs that a peer cannot fill: a few records per minute for each kind of message, and a count of the others."""

import logging
from time import monotonic

__all__ = ["Sparse"]


class Sparse(logging.Filter):
    """Pass ``most`` records of each message per ``seconds``; the next one that passes reports how many were dropped."""

    def __init__(self, most: int = 5, seconds: float = 60.0) -> None:
        super().__init__()
        self._most = most
        self._seconds = seconds
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, kind = monotonic(), str(record.msg)
        since, count = self._seen.get(kind, (now, 0))
        if now - since >= self._seconds:
            if count > self._most:
                record.msg = f"{kind} ({count - self._most} more were not logged)"
            since, count = now, 0
        self._seen[kind] = since, count + 1
        return count < self._most
