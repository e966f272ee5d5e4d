"""The ids of the games, their levels and parameters, in one table."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from palestra.registry import Need, register


class _Game(NamedTuple):
    """A family of games; the id without a level means its hard level."""

    entry: str
    """Module and class, below ``palestra.suite.games``."""
    tags: str
    description: str
    levels: Mapping[str, Mapping[str, Any]]
    max_turns: int | None = None
    """The turn limit if it is not a parameter of the levels."""
    needs: tuple[Need, ...] = ()


_GAMES = {
    # The games of GEM, with its levels.
    "GuessTheNumber": _Game(
        "guess_the_number:GuessTheNumber",
        "search",
        "Find a hidden number from 'higher' and 'lower'.",
        {
            "easy": {"low": 1, "high": 10, "max_turns": 4},
            "hard": {"low": 1, "high": 50, "max_turns": 7},
            "random": {"low": None, "high": None, "max_turns": None},
        },
    ),
    "Mastermind": _Game(
        "mastermind:Mastermind",
        "deduction",
        "Find a secret code from black and white pegs.",
        {
            "easy": {"code_length": 2, "num_numbers": 6, "max_turns": 10},
            "hard": {"code_length": 4, "num_numbers": 8, "max_turns": 30},
            "random": {"code_length": None, "num_numbers": None, "max_turns": None},
        },
    ),
    "Minesweeper": _Game(
        "minesweeper:Minesweeper",
        "deduction",
        "Clear a minefield by logic; no guess is needed.",
        {
            "easy": {"rows": 5, "cols": 5, "num_mines": 5, "max_turns": 25},
            "hard": {"rows": 8, "cols": 8, "num_mines": 12, "max_turns": 64},
            "random": {"rows": None, "cols": None, "num_mines": None, "max_turns": None},
        },
    ),
    "Wordle": _Game(
        "wordle:Wordle",
        "words deduction",
        "Find a secret word from marked letters.",
        {
            "easy": {"word_length": 3, "max_turns": 15},
            "hard": {"word_length": 5, "max_turns": 25},
            "random": {"word_length": None, "max_turns": None},
        },
    ),
    "FifteenPuzzle": _Game(
        "fifteen_puzzle:FifteenPuzzle",
        "planning",
        "Slide numbered tiles into order.",
        {
            "easy": {"num_rows": 2, "max_turns": 10},
            "hard": {"num_rows": 4, "max_turns": 50},
            "random": {"num_rows": None, "max_turns": None},
        },
    ),
    "Hangman": _Game(
        "hangman:Hangman",
        "words",
        "Find a secret word letter by letter.",
        {
            "easy": {"word_length": 3, "max_turns": 10},
            "hard": {"word_length": 7, "max_turns": 20},
            "random": {"word_length": None, "max_turns": None},
        },
    ),
    "Sudoku": _Game(
        "sudoku:Sudoku",
        "deduction",
        "Fill a Sudoku board that has exactly one solution.",
        {
            "easy": {"scale": 4, "clues": 6, "max_turns": 15},
            "hard": {"scale": 9, "clues": 31, "max_turns": 50},
            "random": {"scale": None, "clues": None, "max_turns": None},
        },
    ),
    "TowerofHanoi": _Game(
        "tower_of_hanoi:TowerOfHanoi",
        "planning",
        "Move a stack of disks, never a larger one onto a smaller one.",
        {
            "easy": {"num_disks": 3, "max_turns": 10},
            "hard": {"num_disks": 5, "max_turns": 35},
            "random": {"num_disks": None, "max_turns": None},
        },
    ),
    "Game2048": _Game(
        "game_2048:Game2048",
        "planning chance",
        "Slide and merge tiles up to a target.",
        {
            "easy": {"target_tile": 64, "max_turns": 50},
            "hard": {"target_tile": 512, "max_turns": 50},
            "extreme-hard": {"target_tile": 2048, "max_turns": 100},
            "random": {"target_tile": None, "max_turns": None},
        },
    ),
    "Sokoban": _Game(
        "sokoban:Sokoban",
        "planning",
        "Push boxes onto goals.",
        {
            "easy": {"dim_room": (6, 6), "num_boxes": 2, "max_turns": 20},
            "hard": {"dim_room": (8, 8), "num_boxes": 4, "max_turns": 50},
            "random": {"dim_room": None, "num_boxes": None, "max_turns": None},
        },
    ),
    "Crosswords": _Game(
        "crosswords:Crosswords",
        "words",
        "Fill crossing words from clues, letter by letter.",
        {
            "easy": {"hardcore": False, "num_words": 3, "max_turns": 30},
            "hard": {"hardcore": True, "num_words": 3, "max_turns": 40},
            "random": {"hardcore": None, "num_words": None, "max_turns": None},
        },
    ),
    "WordSearch": _Game(
        "word_search:WordSearch",
        "words search",
        "Find words hidden in a grid of letters.",
        {
            "easy": {"num_words": 5, "max_turns": 20, "hardcore": False},
            "hard": {"num_words": 5, "max_turns": 20, "hardcore": True},
            "random": {"num_words": None, "max_turns": None, "hardcore": None},
        },
    ),
    "WikiGame": _Game(
        "wiki_game:WikiGame",
        "navigation",
        "Get from one article to another by following links.",
        {
            "easy": {"max_turns": 30, "nearest": 2, "farthest": 3},
            "hard": {"max_turns": 15, "nearest": 3, "farthest": 5},
            "random": {"max_turns": None},
        },
        needs=(
            Need(
                label="a corpus of linked articles",
                variable="PALESTRA_WIKI_CORPUS",
                argument="corpus",
                fix="set PALESTRA_WIKI_CORPUS=articles.jsonl",
            ),
        ),
    ),
    # Further games.
    "Blackjack": _Game(
        "blackjack:Blackjack",
        "chance",
        "One hand of Blackjack against the dealer.",
        {"easy": {"open_dealer": True}, "hard": {"open_dealer": False}},
        max_turns=21,
    ),
    "FrozenLake": _Game(
        "frozen_lake:FrozenLake",
        "navigation",
        "Cross a lake without falling into a hole.",
        {
            "easy": {"size": 4, "max_turns": 24},
            "hard": {"size": 8, "max_turns": 48},
            "slippery": {"size": 8, "max_turns": 96, "slip": 0.2},
            "random": {"size": None, "max_turns": None},
        },
    ),
    "Maze": _Game(
        "maze:Maze",
        "navigation",
        "Find the exit of a maze without a map.",
        {
            "easy": {"size": 4, "max_turns": 30},
            "hard": {"size": 8, "max_turns": 126},
            "random": {"size": None, "max_turns": None},
        },
    ),
    "Countdown": _Game(
        "countdown:Countdown",
        "arithmetic",
        "Reach a number by calculating with others.",
        {
            "easy": {"num_numbers": 3, "max_turns": 5},
            "hard": {"num_numbers": 6, "max_turns": 10},
            "random": {"num_numbers": None, "max_turns": None},
        },
    ),
    "LightsOut": _Game(
        "lights_out:LightsOut",
        "planning",
        "Turn all lights off; each press toggles a cross of them.",
        {
            "easy": {"size": 3, "max_turns": 15},
            "hard": {"size": 5, "max_turns": 30},
            "random": {"size": None, "max_turns": None},
        },
    ),
    "TicTacToe": _Game(
        "tic_tac_toe:TicTacToe",
        "opponent",
        "Three in a row against an opponent of adjustable skill.",
        {
            "easy": {"skill": 0.0},
            "hard": {"skill": 0.8},
            "perfect": {"skill": 1.0},
            "random": {"skill": None},
        },
        max_turns=9,
    ),
    "ConnectFour": _Game(
        "connect_four:ConnectFour",
        "opponent planning",
        "Four in a row against an opponent that looks ahead.",
        {
            "easy": {"skill": 0.5, "depth": 1},
            "hard": {"skill": 1.0, "depth": 3},
            "random": {"skill": None, "depth": 3},
        },
        max_turns=42,
    ),
}


for name, game in _GAMES.items():
    register(
        f"game:{name}-v0",
        f"palestra.suite.games.{game.entry}",
        levels=game.levels,
        default_level="hard",
        tags={"game", *game.tags.split()},
        needs=game.needs,
        description=game.description,
        max_turns=game.max_turns,
    )
