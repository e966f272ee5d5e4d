"""A limited resource of a server, shared equally by the owners of its tokens: no owner can take another's share."""

from collections import Counter

__all__ = ["Shares"]


class Shares:
    """``total`` units for ``owners`` owners. No share is smaller than ``least``, unless ``total`` is zero."""

    def __init__(self, total: int, owners: int, least: int = 1) -> None:
        self.share = max(least, total // owners) if total else 0
        self.held = 0
        """Units that all owners hold together."""
        self._held: Counter[bytes] = Counter()

    def room(self, owner: bytes, amount: int = 1) -> bool:
        """Return whether ``owner`` may take ``amount`` more."""
        return self._held[owner] + amount <= self.share

    def take(self, owner: bytes, amount: int = 1) -> None:
        """Count ``amount`` more as held by ``owner``."""
        self.held += amount
        self._held[owner] += amount

    def give_back(self, owner: bytes, amount: int = 1) -> None:
        """Return ``amount`` that ``owner`` held."""
        self.take(owner, -amount)
