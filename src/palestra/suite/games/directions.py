"""Games whose moves are up, down, left and right."""

from palestra.suite.games.game import Game, boxed

__all__ = ["DIRECTIONS", "OPPOSITE", "DirectionGame"]

DIRECTIONS = ("up", "down", "left", "right")

OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


class DirectionGame(Game[str]):
    """Accepts one of the four directions, in upper or lower case."""

    how_to_move = "Think as long as you like, then give up, down, left or right inside \\boxed{}, for example \\boxed{left}."
    """The last line of the rules."""

    def read(self, answer: str) -> str | None:
        word = answer.lower()
        return word if word in DIRECTIONS else None

    def sample_random_action(self) -> str:
        return boxed(self.draw_action(DIRECTIONS))

    def constant_answers(self) -> list[str]:
        return [boxed(direction) for direction in DIRECTIONS]
