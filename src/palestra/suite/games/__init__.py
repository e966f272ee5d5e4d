"""Language games: rules, a hidden state, moves in text. One file per game; ``game.py`` holds what they share."""
