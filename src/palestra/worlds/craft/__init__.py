"""Crafting worlds: make an item from its recipe, the parts from theirs, down to materials that anyone can fetch."""
