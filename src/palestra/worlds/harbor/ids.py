"""The scheme ``harbor:FOLDER#task``: Harbor tasks in a folder of the user's."""

from palestra.registry import register_scheme
from palestra.worlds.terminal.ids import BOX

register_scheme(
    "harbor",
    "palestra.worlds.harbor.env:Harbor",
    whole=True,
    tags=frozenset({"terminal", "world"}),
    needs=BOX,
    description="Harbor tasks in a folder of your own.",
)
