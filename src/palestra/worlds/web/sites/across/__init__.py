"""Errands across sites: what one site says is written on another one."""
