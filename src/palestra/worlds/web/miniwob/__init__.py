"""MiniWoB++: small tasks in small pages, from the package ``miniwob``."""
