"""TextArena's games as Palestra environments. Tried with TextArena 0.7.4.

``palestra.make("textarena:TicTacToe-v0-raw?players=2")`` plays a game of TextArena's registry. Ids that end in ``-raw`` show a
player only what is new, which suits Palestra: a conversation keeps what was shown before. Other ids repeat the whole game in
every observation.

TextArena draws from Python's global generator. Each environment has generators of its own, and rollouts play it in a worker
process, so the same task gives the same episode.
"""

from typing import Any

from palestra.bridges.generators import GlobalGenerators
from palestra.bridges.versions import TRIED, framework
from palestra.core import Env, Step
from palestra.errors import EnvError, UsageError
from palestra.trajectory import Content, Task

__all__ = ["TextArenaEnv"]

LARGEST_SEED = 2**31 - 1


class TextArenaEnv(Env):
    """A game of TextArena for one or several players.

    Args:
        path: The id in TextArena.
        players: The number of players. They are called ``player 0``, ``player 1`` and so on.
        actions: Actions to draw from in ``sample_random_action``, separated by ``|``, such as ``[0]|[1]|[2]``.
        settings: Keywords of ``textarena.make``.

    Raises:
        UsageError: TextArena cannot make the game.
    """

    blocking = True
    max_turns = 1000

    def __init__(self, path: str, *, players: int = 1, actions: str = "", **settings: Any) -> None:
        textarena = framework("textarena", "textarena", "make")
        self._path, self._players = path, players
        self._actions = [action for action in str(actions).split("|") if action]
        self._generators = GlobalGenerators()
        try:
            with self._generators.own(0):
                self._env: Any = textarena.make(env_id=path, **settings)
        except Exception as error:
            tried = f"tried with {TRIED['textarena'].version}"
            message = f'TextArena ({tried}) cannot make "{path}": {type(error).__name__}: {error}'
            raise UsageError(message) from error

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Start a game. A seed below 2**31 starts the same one as ``reset(seed=seed)`` in TextArena."""
        super().reset(seed=seed, task=task)
        drawn = self.task.seed & LARGEST_SEED
        with self._generators.own(drawn):
            try:
                self._env.reset(num_players=self._players, seed=drawn)
            except AssertionError as error:
                raise EnvError(f'"{self._path}" does not take {self._players} players; write ?players=N: {error}') from None
            return self._observed()

    def step(self, action: str) -> Step:
        """Take the action of the current player. TextArena pays all rewards at the end."""
        actor = int(self._env.state.current_player_id)
        with self._generators.own():
            done, _ = self._env.step(action=action)
            if not done:
                observation, info = self._observed()
                return Step(observation, 0.0, False, False, info)
            rewards, about = self._env.close()
        reward = float((rewards or {}).get(actor, 0.0))
        info = {"success": reward > 0 if self._players > 1 else reward >= 1.0}
        if self._players > 1:
            info["rewards"] = {f"player {player}": float(paid) for player, paid in (rewards or {}).items()}
        return Step(str(about.get(actor, {}).get("reason", "The game is over.")), reward, True, False, info)

    def sample_random_action(self) -> str:
        """Return one of the ``actions``, or a number in brackets, which many games read."""
        if self._actions:
            return self._actions[int(self.action_rng.integers(len(self._actions)))]
        return f"[{int(self.action_rng.integers(10))}]"

    def _observed(self) -> tuple[str, dict[str, Any]]:
        player, shown = self._env.get_observation()
        text = shown if isinstance(shown, str) else "\n".join(str(message[1]) for message in shown)
        return text, {"player": f"player {player}"} if self._players > 1 else {}
