"""What the sites that are Django applications share. Only their processes import it."""
