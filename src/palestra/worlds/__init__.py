"""Places with a state of their own, which an agent explores over many turns. Nothing outside imports a world."""
