"""BabyAI: the levels of minigrid as text or pictures, with macro actions or primitive ones."""
