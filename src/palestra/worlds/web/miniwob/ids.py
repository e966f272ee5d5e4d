"""The ids ``web:miniwob-TASK``."""

from palestra.registry import Need, register
from palestra.worlds.web.miniwob.tasks import TASKS
from palestra.worlds.web.needs import BROWSER

_NEEDS = (*BROWSER, Need(label="miniwob", module="miniwob", extra="web"))
_ENTRY = "palestra.worlds.web.miniwob.env:MiniWob"


for name, about in TASKS.items():
    tags = {"world", "web", "miniwob"} | ({"points"} if about.by_point else set())
    what = f"{name}, a task of MiniWoB++ in a real browser"
    register(
        f"web:miniwob-{name}", _ENTRY, kwargs={"name": name}, tags=tags, needs=_NEEDS, max_turns=15, description=f"{what}."
    )
