"""Environments over the network.

``serve`` offers environments to whoever has a token; ``RemoteEnv``, made by ``palestra.make("remote:URL#ID", token=…)``,
plays them from anywhere, with the same results. Read in this order: ``wire`` (what travels), ``sessions`` (the rules),
``host`` (where environments run), ``connection`` and ``http`` (the two doors), ``server``; on the other side ``link`` and
``client``.
"""

from typing import TYPE_CHECKING

from palestra.serve.client import RemoteEnv
from palestra.serve.wire import Limits

if TYPE_CHECKING:
    from palestra.serve.server import EnvServer, serve

__all__ = ["EnvServer", "Limits", "RemoteEnv", "serve"]


def __getattr__(name: str) -> object:
    # The server's packages are not needed to be a client.
    if name in ("EnvServer", "serve"):
        from palestra.serve import server

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
