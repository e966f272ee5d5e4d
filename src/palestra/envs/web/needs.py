"""What every environment of the web needs from the machine."""

from palestra.registry import Need

__all__ = ["BROWSER"]

BROWSER = (
    Need(label="Playwright", module="playwright", extra="web"),
    Need(label="Chromium", program="chromium", fix="apt-get install chromium"),
    Need(label="bubblewrap", program="bwrap", fix="apt-get install bubblewrap"),
)
