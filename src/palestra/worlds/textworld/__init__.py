"""TextWorld's challenges: text adventures that are generated from a seed, in the namespace ``text:``."""
