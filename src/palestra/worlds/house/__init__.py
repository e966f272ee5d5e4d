"""Household tasks in text: ALFWorld's six task types on an engine of our own (``house:``)."""
