"""Products have no pictures."""

from typing import Any, NamedTuple

__all__ = ["NoPictures"]


class _Picture(NamedTuple):
    url: str = "data:,"
    width: int = 1
    height: int = 1


class NoPictures:
    """Stands where Oscar expects a maker of thumbnails."""

    def generate_thumbnail(self, source: Any, **options: Any) -> _Picture:
        """Return an empty picture."""
        return _Picture()

    def delete_thumbnails(self, source: Any) -> None:
        """Do nothing: there are none."""
