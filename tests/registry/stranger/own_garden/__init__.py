"""A world of a stranger's package. It imports only what docs/reference/for-authors.md opens."""
