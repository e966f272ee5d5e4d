"""One game of TextWorld per episode.

The reward of a step is the points that it earns, divided by all points of the game, so the rewards of an episode that is won
add up to 1. The episode ends when the game is won or lost.

A second instance of the game, made when it is first needed, knows the way to the goal and the commands that work now: to follow
the state of a game costs TextWorld more time than to play it. It makes the commands that it has missed before it answers.
"""

from collections.abc import Mapping
from typing import Any

from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.trajectory import StopReason, Task
from palestra.worlds.textworld.commands import first_text, grammar, observed, read_command
from palestra.worlds.textworld.games import CHALLENGES, GameFile, game_file, quietly
from palestra.worlds.textworld.picture import Seen, drawn_game

__all__ = ["TextAdventure"]


class TextAdventure(Env):
    """A text adventure that is drawn from the seed.

    Args:
        challenge: ``coin``, ``treasure``, ``cooking`` or ``simple``.
        settings: The settings of TextWorld's challenge. ``recipe_seed=None`` draws the recipe from the seed, too.
        directions: Let the goal name every step of a solution, as TextWorld does by default, and not only the last one.
        max_turns: The turn limit.
        floor: The mean score of the best constant reply, as measured with these settings.
    """

    blocking = True
    variables = ("PALESTRA_HOME", "XDG_CACHE_HOME")
    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)
    counts_turns = True
    max_turns: int

    def __init__(
        self,
        challenge: str,
        settings: Mapping[str, Any],
        directions: bool = False,
        max_turns: int = 100,
        floor: float = 0.0,
    ) -> None:
        if challenge not in CHALLENGES:
            raise UsageError(f'TextWorld has no challenge "{challenge}" here; there are {", ".join(CHALLENGES)}')
        self._challenge = challenge
        self._settings = dict(settings)
        self._directions = directions
        self.max_turns = max_turns
        self._floor = floor
        self._game: _Running | None = None
        self._guide: _Guide | None = None

    @property
    def floor(self) -> float:
        return self._floor

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.close()
        drawn = int(self.rng.integers(2**31 - 1))
        self._file = game_file(self._challenge, self._settings, self._directions, drawn)
        self._game = _Running(self._file)
        self._made: list[Seen] = []
        self._turn = self._score = 0
        return self._opening(), {"max_turns": self.max_turns, "data": {"sha256": self._file.sha256}}

    def step(self, action: str) -> Step:
        game = self._playing()
        self._turn += 1
        command = read_command(action, game.verbs)
        if command is None:
            text = f"Your reply contains no command. Write one on its last line. The commands are:\n{grammar(game.verbs)}"
            return self._continued(text, 0.0, {"format_error": True, "score": self._score})
        state = game.step(command)
        score = int(state["score"] or 0)
        reward, self._score = max(0, score - self._score) / game.max_score, max(score, self._score)
        text = observed(state["feedback"])
        self._made.append(Seen(command, text))
        if state["won"] or state["lost"]:
            return Step(text, reward, True, False, {"success": bool(state["won"]), "score": self._score})
        return self._continued(text, reward, {"score": self._score})

    def _continued(self, text: str, reward: float, info: dict[str, Any]) -> Step:
        if self._turn < self.max_turns:
            return Step(text, reward, False, False, info)
        info |= {"success": False, "stop_reason": StopReason.TURN_LIMIT}
        return Step(f"{text}\nYou have used all {self.max_turns} turns.", reward, False, True, info)

    def close(self) -> None:
        for part in (self._game, self._guide):
            if part is not None:
                part.close()
        self._game = self._guide = None

    def oracle(self) -> str:
        """Return the next command of TextWorld's own solution; ``look`` if the game cannot be won any more."""
        return self._guided().next_command()

    def sample_random_action(self) -> str:
        """Return one of the commands that change or show something now."""
        commands = self._guided().commands()
        return commands[int(self.action_rng.random() * len(commands))]

    def fork(self) -> "TextAdventure":
        """Return an independent copy, which makes the same commands in a new instance of the game."""
        twin = TextAdventure(self._challenge, self._settings, self._directions, self.max_turns, self._floor)
        twin.reset(task=self.task)
        for seen in self._made:
            twin._playing().step(seen.command)
        twin._made, twin._turn, twin._score = list(self._made), self._turn, self._score
        return twin

    def render(self) -> str:
        """Return the rooms that the agent has entered and its last commands as HTML for people."""
        game = self._playing()
        state = f"{self._score} of {game.max_score} points, turn {self._turn} of {self.max_turns}"
        return drawn_game(state, first_text(game.opening), self._made)

    def _playing(self) -> "_Running":
        assert self._game is not None, "reset() comes before step()"
        return self._game

    def _guided(self) -> "_Guide":
        self._playing()
        if self._guide is None:
            self._guide = _Guide(self._file)
        self._guide.follow([seen.command for seen in self._made])
        return self._guide

    def _opening(self) -> str:
        game = self._playing()
        return (
            f"You play a text adventure.\n\n{first_text(game.opening)}\n\n"
            f"The commands are:\n{grammar(game.verbs)}\n"
            f"The last line of your reply is your command. You have {self.max_turns} turns."
        )


class _Running:
    """A game that is being played by TextWorld."""

    _WANTED: tuple[str, ...] = ("won", "lost", "score", "max_score", "verbs")

    def __init__(self, file: GameFile) -> None:
        with quietly():
            import textworld

            wanted = textworld.EnvInfos(**dict.fromkeys(self._WANTED, True))
            self._env = textworld.start(str(file.story), wanted)
            self._env.seed(1)  # of the interpreter, which otherwise takes the time of day
            self.state = self._env.reset()
        self.opening = str(self.state["feedback"])
        self.verbs = frozenset(self.state["verbs"])
        self.max_score = max(1, int(self.state["max_score"]))

    def step(self, command: str) -> Any:
        self.state, _, _ = self._env.step(command)
        return self.state

    def close(self) -> None:
        self._env.close()


class _Guide(_Running):
    """A second instance of a game that also follows its state."""

    _WANTED = (*_Running._WANTED, "policy_commands", "admissible_commands", "game")

    def __init__(self, file: GameFile) -> None:
        super().__init__(file)
        self._made: list[str] = []
        self._walkthrough = list(self.state["game"].metadata.get("walkthrough") or ())

    def follow(self, made: list[str]) -> None:
        """Make the commands of ``made`` that were not made yet."""
        for command in made[len(self._made) :]:
            self.step(command)
            self._made.append(command)

    def next_command(self) -> str:
        if policy := self.state["policy_commands"]:
            return str(policy[0])
        place = 0
        for command in self._made:
            place += place < len(self._walkthrough) and command == self._walkthrough[place].lower()
        return self._walkthrough[place] if place < len(self._walkthrough) else "look"

    def commands(self) -> list[str]:
        return list(self.state["admissible_commands"]) or ["look"]
