"""Language games: rules, a hidden state, moves in text. One file a game, ``game.py`` for what they share."""
