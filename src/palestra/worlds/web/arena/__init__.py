"""Tasks of WebArena-Verified in Palestra's browser: its package reads and grades them, in a virtual environment of its own."""
