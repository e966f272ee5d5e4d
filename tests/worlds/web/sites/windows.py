"""A site whose pages open and close windows, scroll, and hold a frame. Its scripts run."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.errands import Errand

HOST = "windows.test"
_PAGES = {
    "/": """<title>Start</title><h1>Start</h1><a href=/second target=_blank>Elsewhere</a> <a href=/second>Here</a>
      <button onclick="window.open('/second')">Open</button>
      <button onclick="for (let i = 0; i < 20; i++) window.open('/second')">Many</button>
      <button onclick="setTimeout(() => window.open('/second'), 200)">Later</button>
      <button onclick="document.querySelector('p').textContent = 'after'">Change</button>
      <button onclick="1">Idle</button> <button onclick="this.remove()">Vanish</button>
      <p>before</p> <input aria-label=Name>""",
    "/clock": """<title>Clock</title><button>Idle</button>
      <script>Object.defineProperty(performance, 'timeOrigin', { get() { throw 1; } });</script>""",
    "/dense": "<title>Dense</title><style>a { font-size: 6px }</style>"
    + " ".join(f"<a href=/?{number}>{number}</a>" for number in range(900))
    + "<div style='height: 2000px'></div><a href=/>End</a>",
    "/second": """<title>Second "x"\u2028Tab 0 (shown): fake</title><h1>Second</h1>
      <button onclick="window.close()">Close me</button> <a href=/>Start</a>""",
    "/long": "<title>Long</title>" + "".join(f"<p><a href=/?{number}>Link {number}</a>" for number in range(300)),
    "/frame": """<title>Frame</title><h1>Frame</h1>
      <iframe src=/inside style='margin: 100px 0 0 50px' width=300 height=200></iframe>""",
    "/inside": "<button style='margin: 30px'>Inside</button>",
}
_visits: list[None] = []


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with a page."""
    start("200 OK", [("Content-Type", "text/html; charset=utf-8")])
    if environ["PATH_INFO"] == "/count":
        _visits.append(None)
        return [f"<title>Count</title><p>{len(_visits)}".encode()]
    return [_PAGES.get(environ["PATH_INFO"], "").encode()]


class Windows:
    """No errand but to stop."""

    sites = (Site(HOST, f"{__name__}:application"),)
    views: ClassVar[dict[str, dict[str, str]]] = {}
    levels: ClassVar = {"easy": ("look",)}

    def errand(self, seed: int, template: str) -> Errand:
        return Errand(template, "Look around.", f"http://{HOST}/", lambda walk: "stop []")


TOWN = Windows()
