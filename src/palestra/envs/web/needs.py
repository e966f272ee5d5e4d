"""What every environment of the web needs from the machine."""

from palestra.envs.web.jail import has_chromium
from palestra.registry import Need

__all__ = ["BROWSER"]

BROWSER = (
    Need(label="Playwright", module="playwright", extra="web"),
    Need(label="Chromium", condition=has_chromium, fix="apt-get install chromium-headless-shell, or set PALESTRA_CHROMIUM"),
    Need(label="bubblewrap", program="bwrap", fix="apt-get install bubblewrap"),
)
