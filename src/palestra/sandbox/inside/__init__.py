"""The programs that run inside boxes. The host sends their modules along, each compiled on its own (see ``profile``).

They import each other, modules that load in microseconds, and nothing else of Palestra: every box pays for what they import.
Types that are needed only by a checker stand behind a ``TYPE_CHECKING`` of their own, because ``typing`` is slow to load.
"""
