"""Trajectories → something to look at: one page, served on this machine or written to a file."""

from palestra.viewer.page import export_page

__all__ = ["export_page"]
