"""One sandbox per event loop and limits, shared by all its users. It is closed when the last user releases it."""

from contextlib import AbstractAsyncContextManager

from palestra.foundation.resources.sharing import SharedPerLoop
from palestra.sandbox.contract import Limits, Sandbox
from palestra.sandbox.local import Bubblewrap

__all__ = ["shared_sandbox"]

_sandboxes: SharedPerLoop[Limits, Sandbox] = SharedPerLoop(Bubblewrap, lambda sandbox: sandbox.close())


def shared_sandbox(limits: Limits | None = None) -> AbstractAsyncContextManager[Sandbox]:
    """Share bubblewrap boxes with ``limits`` among all users on the running loop; the last one to leave closes them."""
    return _sandboxes.use(limits or Limits())
