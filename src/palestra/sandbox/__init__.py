"""The box: where model-written code runs, with limits on by default.

``open_sandbox()`` gives bubblewrap boxes. There is no fall-back: where bubblewrap is missing, the error says what to install.
"""

from palestra.sandbox.contract import KilledBy, Limits, Outcome, Program, Sandbox, Session, Usage
from palestra.sandbox.local import Bubblewrap, Unboxed

__all__ = ["Bubblewrap", "KilledBy", "Limits", "Outcome", "Program", "Sandbox", "Session", "Unboxed", "Usage"]
