"""Environments over the network.

``serve`` offers environments to clients that present a token. ``RemoteEnv``, made by
``palestra.make("remote:URL#ID", token=…)``, plays them from anywhere with the same results. Read in this order: ``wire``
(frames), ``session``, ``sessions`` and ``verbs`` (the rules), ``host`` (where environments run), ``slots`` and ``listener``
(which connections are accepted), ``requests``, ``connection`` and ``http`` (the two protocols), ``server``; on the client's
side ``link`` and ``client``.
"""

from typing import TYPE_CHECKING

from palestra.serve.wire import ServerLimits

if TYPE_CHECKING:
    from palestra.serve.client import RemoteEnv
    from palestra.serve.server import EnvServer, serve

__all__ = ["EnvServer", "RemoteEnv", "ServerLimits", "serve"]


def __getattr__(name: str) -> object:
    # A client does not need the server's packages, and `palestra index serve`, which only reads tokens, needs neither.
    if name in ("EnvServer", "serve"):
        from palestra.serve import server

        return getattr(server, name)
    if name == "RemoteEnv":
        from palestra.serve.client import RemoteEnv

        return RemoteEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
