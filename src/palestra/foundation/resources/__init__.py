"""Resources of a process: connections that belong to an event loop, what several users share, and the number of open files."""
