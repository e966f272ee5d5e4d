"""What every environment of the web needs from the machine."""

from palestra.registry import Need
from palestra.worlds.web.jail import has_chromium

__all__ = ["BROWSER"]

BROWSER = (
    Need(label="Playwright", module="playwright", extra="web"),
    Need(label="Chromium", condition=has_chromium, fix="apt-get install chromium-headless-shell, or set PALESTRA_CHROMIUM"),
    Need(label="bubblewrap", program="bwrap", fix="apt-get install bubblewrap"),
)
