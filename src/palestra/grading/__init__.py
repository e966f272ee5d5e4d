"""Extract answers from text, and compare them.

``extract`` and ``text`` are plain functions. ``code`` judges programs in boxes; ``maths`` compares formulas in worker
processes that can be killed. Import these two by their modules.
"""

from palestra.grading.extract import fenced_code, first_stated_answer, last_answer, last_boxed, stated_answer
from palestra.grading.text import exact_match, f1

__all__ = ["exact_match", "f1", "fenced_code", "first_stated_answer", "last_answer", "last_boxed", "stated_answer"]
