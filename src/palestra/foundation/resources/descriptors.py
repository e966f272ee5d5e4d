"""The number of files and sockets that this process may open.

Most systems start processes with a soft limit of 1,024 descriptors, for programs that use ``select``. Palestra does not use
it: an open interpreter takes four descriptors and a remote environment one, so a few hundred concurrent episodes exceed that
limit. The administrator sets the hard limit, and every process may raise its soft limit that far.
"""

import contextlib
import resource

__all__ = ["raise_descriptor_limit"]

_FALLBACKS = (2**20, 10_240)
"""Limits that Linux (``fs.nr_open``) and macOS (``OPEN_MAX``) accept if the hard limit is unlimited."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit on open descriptors to the hard limit, or as far as the system allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, *_FALLBACKS):
        if _order(wanted) <= _order(soft):
            break
        with contextlib.suppress(ValueError, OSError):  # more than the kernel accepts: try the next value
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft


def _order(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit
