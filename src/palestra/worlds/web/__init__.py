"""The web: a real browser without a network, seen as a list of elements, and the worlds that are played in it."""
