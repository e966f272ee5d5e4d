"""Deep search: questions whose answer stands in the last of several documents, each of which names the next.

``graph``      entities and relations, as documents and as questions
``invented``   a world from a seed (``phrases`` has its sentences)
``facts``      the real world, from packages of geographical and chemical data
``index``      the worlds of this process and their indexes
``env``        the environment: a search tool and one question
"""

from typing import TYPE_CHECKING

from palestra.foundation.imports import lazy_names

if TYPE_CHECKING:
    from palestra.worlds.deepsearch.env import DeepSearch

__all__ = ["DeepSearch"]

__getattr__ = lazy_names(__name__, {"DeepSearch": "env"})
