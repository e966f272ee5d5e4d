"""Worker processes for environments that block: ``InWorker`` plays an ``Env`` in a process that is killed when it hangs."""

from palestra.adapters.workers.pool import InWorker, WorkerPool

__all__ = ["InWorker", "WorkerPool"]
