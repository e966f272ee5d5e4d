"""Reading answers out of text, and comparing them."""

from palestra.grading.extract import last_boxed

__all__ = ["last_boxed"]
