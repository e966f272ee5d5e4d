"""Every built-in id, its levels and their parameters, in one table."""

from palestra.registry import register

__all__ = ["register_suite"]


def register_suite() -> None:
    """Register the built-in environments. Doing it twice changes nothing."""
    _register_games()


def _register_games() -> None:
    register(
        "game:GuessTheNumber-v0",
        "palestra.envs.games.guess_the_number:GuessTheNumber",
        levels={
            "easy": {"low": 1, "high": 10, "max_turns": 4},
            "hard": {"low": 1, "high": 50, "max_turns": 7},
            "random": {"low": None, "high": None, "max_turns": None},
        },
        default_level="hard",
        tags={"game", "search"},
        description="Find a hidden number from 'higher' and 'lower'.",
    )
