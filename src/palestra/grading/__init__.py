"""Reading answers out of text, and comparing them.

``extract`` and ``text`` are plain functions. ``code`` judges programs in boxes, ``maths`` compares formulas in workers that
can be killed; import those two by their modules.
"""

from palestra.grading.extract import fenced_code, last_answer, last_boxed
from palestra.grading.text import exact_match, f1

__all__ = ["exact_match", "f1", "fenced_code", "last_answer", "last_boxed"]
