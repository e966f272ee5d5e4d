"""Harbor tasks, played in the box without a container daemon."""
