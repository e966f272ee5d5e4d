"""Terminal worlds: a real shell in a box, and tasks drawn from seeds that are graded outside it."""
