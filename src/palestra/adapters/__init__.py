"""Adapters between the two kinds of environment, and the guards that ``make`` puts around an environment.

``Direct``      a plain ``Env`` as an ``AsyncEnv``, called in place. It costs one method call per step.
``Blocking``    an ``AsyncEnv`` as a plain ``Env``, on a background event loop (``loop_thread``).
``Guarded``     what ``make`` returns: it refuses a step after the end and closes once.

``Wrapper``     the class to inherit from in order to modify an environment.

``Limited`` and ``AsyncLimited`` wrap the author's object directly and truncate its episodes at the turn limit.
``palestra.adapters.workers`` holds a fourth way: a blocking environment in a process of its own.
"""

from palestra.adapters.blocking import Blocking
from palestra.adapters.direct import Direct, as_async, unblocked
from palestra.adapters.guarded import Guarded
from palestra.adapters.limited import AsyncLimited, Limited, TurnLimit
from palestra.adapters.wrapper import Wrapper

__all__ = [
    "AsyncLimited",
    "Blocking",
    "Direct",
    "Guarded",
    "Limited",
    "TurnLimit",
    "Wrapper",
    "as_async",
    "unblocked",
]
