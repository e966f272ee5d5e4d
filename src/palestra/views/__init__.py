"""One environment, four ways to hold it.

An author writes one class; these adapters show it to whoever drives it.

``Direct``      a plain ``Env`` as an ``AsyncEnv``, called in place. Costs a method call.
``InWorker``    a blocking ``Env`` as an ``AsyncEnv``, in a worker process that is killed when it hangs.
``Blocking``    an ``AsyncEnv`` as a plain ``Env``, on a background event loop.
``Guarded``     what ``make`` hands to a user: refuses a step after the end, closes once.
"""

from palestra.views.blocking import Blocking, LoopThread
from palestra.views.direct import Direct, as_async
from palestra.views.guarded import Guarded
from palestra.views.worker import InWorker, WorkerPool

__all__ = ["Blocking", "Direct", "Guarded", "InWorker", "LoopThread", "WorkerPool", "as_async"]
