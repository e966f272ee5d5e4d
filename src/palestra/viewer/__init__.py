"""Shows trajectories on one page, served on this machine or written to a file."""

from palestra.viewer.index import RunIndex, open_runs
from palestra.viewer.page import export_page
from palestra.viewer.server import ViewerServer
from palestra.viewer.view import export_runs, view

__all__ = ["RunIndex", "ViewerServer", "export_page", "export_runs", "open_runs", "view"]
