"""Every built-in id, its levels and their parameters, in one table."""

from palestra.registry import Need, register

__all__ = ["register_suite"]


def register_suite() -> None:
    """Register the built-in environments. Doing it twice changes nothing."""
    _register_games()


_GAMES = "palestra.envs.games"


def _register_games() -> None:
    register(
        "game:GuessTheNumber-v0",
        f"{_GAMES}.guess_the_number:GuessTheNumber",
        levels={
            "easy": {"low": 1, "high": 10, "max_turns": 4},
            "hard": {"low": 1, "high": 50, "max_turns": 7},
            "random": {"low": None, "high": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "search"},
        description="Find a hidden number from 'higher' and 'lower'.",
    )
    register(
        "game:Mastermind-v0",
        f"{_GAMES}.mastermind:Mastermind",
        levels={
            "easy": {"code_length": 2, "num_numbers": 6, "max_turns": 10},
            "hard": {"code_length": 4, "num_numbers": 8, "max_turns": 30},
            "random": {"code_length": None, "num_numbers": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "deduction"},
        description="Find a secret code from black and white pegs.",
    )
    register(
        "game:TowerofHanoi-v0",
        f"{_GAMES}.tower_of_hanoi:TowerOfHanoi",
        levels={
            "easy": {"num_disks": 3, "max_turns": 10},
            "hard": {"num_disks": 5, "max_turns": 35},
            "random": {"num_disks": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "planning"},
        description="Move a stack of disks, never a larger one onto a smaller one.",
    )
    register(
        "game:Sudoku-v0",
        f"{_GAMES}.sudoku:Sudoku",
        levels={
            "easy": {"scale": 4, "clues": 6, "max_turns": 15},
            "hard": {"scale": 9, "clues": 31, "max_turns": 50},
            "random": {"scale": None, "clues": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "deduction"},
        description="Fill a Sudoku board that has exactly one solution.",
    )
    register(
        "game:Minesweeper-v0",
        f"{_GAMES}.minesweeper:Minesweeper",
        levels={
            "easy": {"rows": 5, "cols": 5, "num_mines": 5, "max_turns": 25},
            "hard": {"rows": 8, "cols": 8, "num_mines": 12, "max_turns": 64},
            "random": {"rows": None, "cols": None, "num_mines": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "deduction"},
        description="Clear a minefield by logic; no guess is needed.",
    )
    register(
        "game:Wordle-v0",
        f"{_GAMES}.wordle:Wordle",
        levels={
            "easy": {"word_length": 3, "max_turns": 15},
            "hard": {"word_length": 5, "max_turns": 25},
            "random": {"word_length": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "words"},
        description="Find a secret word from marked letters.",
    )
    register(
        "game:Hangman-v0",
        f"{_GAMES}.hangman:Hangman",
        levels={
            "easy": {"word_length": 3, "max_turns": 10},
            "hard": {"word_length": 7, "max_turns": 20},
            "random": {"word_length": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "words"},
        description="Find a secret word letter by letter.",
    )
    register(
        "game:FifteenPuzzle-v0",
        f"{_GAMES}.fifteen_puzzle:FifteenPuzzle",
        levels={
            "easy": {"num_rows": 2, "max_turns": 10},
            "hard": {"num_rows": 4, "max_turns": 50},
            "random": {"num_rows": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "planning"},
        description="Slide numbered tiles into order.",
    )
    register(
        "game:Game2048-v0",
        f"{_GAMES}.game_2048:Game2048",
        levels={
            "easy": {"target_tile": 64, "max_turns": 50},
            "hard": {"target_tile": 512, "max_turns": 50},
            "extreme-hard": {"target_tile": 2048, "max_turns": 100},
            "random": {"target_tile": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "planning", "chance"},
        description="Slide and merge tiles up to a target.",
    )
    register(
        "game:Sokoban-v0",
        f"{_GAMES}.sokoban:Sokoban",
        levels={
            "easy": {"dim_room": (6, 6), "num_boxes": 2, "max_turns": 20},
            "hard": {"dim_room": (8, 8), "num_boxes": 4, "max_turns": 50},
            "random": {"dim_room": None, "num_boxes": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "planning"},
        description="Push boxes onto goals.",
    )
    register(
        "game:Crosswords-v0",
        f"{_GAMES}.crosswords:Crosswords",
        levels={
            "easy": {"hardcore": False, "num_words": 3, "max_turns": 30},
            "hard": {"hardcore": True, "num_words": 3, "max_turns": 40},
            "random": {"hardcore": None, "num_words": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "words"},
        description="Fill crossing words from clues, letter by letter.",
    )
    register(
        "game:WordSearch-v0",
        f"{_GAMES}.word_search:WordSearch",
        levels={
            "easy": {"num_words": 5, "max_turns": 20, "hardcore": False},
            "hard": {"num_words": 5, "max_turns": 20, "hardcore": True},
            "random": {"num_words": None, "max_turns": None, "hardcore": None},
        },
        default_level="hard",
        tags={"game", "words"},
        description="Find words hidden in a grid of letters.",
    )
    register(
        "game:WikiGame-v0",
        f"{_GAMES}.wiki_game:WikiGame",
        levels={
            "easy": {"max_turns": 30, "nearest": 2, "farthest": 3},
            "hard": {"max_turns": 15, "nearest": 3, "farthest": 5},
            "random": {"max_turns": None},
        },
        default_level="hard",
        tags={"game", "navigation"},
        needs=[
            Need(
                label="a corpus of linked articles",
                variable="PALESTRA_WIKI_CORPUS",
                argument="corpus",
                fix="set PALESTRA_WIKI_CORPUS=articles.jsonl",
            )
        ],
        description="Get from one article to another by following links.",
    )
    register(
        "game:Blackjack-v0",
        f"{_GAMES}.blackjack:Blackjack",
        levels={"easy": {"open_dealer": True}, "hard": {"open_dealer": False}},
        default_level="hard",
        max_turns=21,
        tags={"game", "chance"},
        description="One hand of Blackjack against the dealer.",
    )
    register(
        "game:FrozenLake-v0",
        f"{_GAMES}.frozen_lake:FrozenLake",
        levels={
            "easy": {"size": 4, "max_turns": 24},
            "hard": {"size": 8, "max_turns": 48},
            "slippery": {"size": 8, "max_turns": 96, "slip": 0.2},
            "random": {"size": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "navigation"},
        description="Cross a lake without falling into a hole.",
    )
    register(
        "game:Maze-v0",
        f"{_GAMES}.maze:Maze",
        levels={
            "easy": {"size": 4, "max_turns": 30},
            "hard": {"size": 8, "max_turns": 126},
            "random": {"size": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "navigation"},
        description="Find the exit of a maze without a map.",
    )
    register(
        "game:LightsOut-v0",
        f"{_GAMES}.lights_out:LightsOut",
        levels={
            "easy": {"size": 3, "max_turns": 15},
            "hard": {"size": 5, "max_turns": 30},
            "random": {"size": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "planning"},
        description="Turn all lights off; each press toggles a cross of them.",
    )
