"""Environments of skyrl-gym as Palestra environments. Tried with skyrl-gym 0.4.0.

``palestra.make("skyrl:gsm8k?rows=train.jsonl")`` plays the rows of a data set of SkyRL: each has a ``prompt``, which is a list
of messages, and the fields that the environment reads, such as ``reward_spec``. Without a file, the row is ``Task.params``.
``skyrl.py`` has the other direction.
"""

import hashlib
from pathlib import Path
from typing import Any

from palestra.bridges.versions import TRIED, framework
from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.foundation.encoding import encode_json
from palestra.suite.data.loader import numbered_rows
from palestra.trajectory import Content, Task

__all__ = ["SkyRLRows", "SkyRLTextEnv"]


class SkyRLRows:
    """The rows of a file, each of which is a task."""

    def __init__(self, path: str, *, rows: str = "", **_: Any) -> None:
        file = Path(rows).expanduser()
        if not rows or not file.is_file():
            raise UsageError(f'"skyrl:{path}" needs a file of rows: write skyrl:{path}?rows=FILE.jsonl, or set Task.params')
        self.rows: list[dict[str, Any]] = [dict(row) for _, row in numbered_rows(file)]
        if broken := [at for at, row in enumerate(self.rows, 1) if not isinstance(row.get("prompt"), list)]:
            raise UsageError(f"row {broken[0]} of {rows} has no prompt, which must be a list of messages")

    @property
    def sha256(self) -> str:
        """Hash of the rows."""
        return hashlib.sha256(encode_json(self.rows)).hexdigest()

    def __len__(self) -> int:
        return len(self.rows)


class SkyRLTextEnv(Env):
    """An environment of skyrl-gym's registry. Some of them wait for a server or a database: rollouts play them in workers.

    Args:
        path: The id in skyrl-gym, such as ``gsm8k``.
        rows: A file with one row per task. Without it, the row is ``Task.params``.
        settings: The ``env_config`` of the environment.
    """

    blocking = True

    def __init__(self, path: str, *, rows: str = "", **settings: Any) -> None:
        self._path, self._settings = path, settings
        self._rows = SkyRLRows(path, rows=rows) if rows else None
        self._env: Any = None

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Start the episode of a row. All messages of its prompt but the last are the opening."""
        skyrl_gym = framework("skyrl_rows", "skyrl_gym", "make")
        super().reset(seed=seed, task=task)
        self.close()
        row, about = self._row()
        extras = {key: value for key, value in row.items() if key != "prompt"}
        try:
            self._env = skyrl_gym.make(self._path, env_config=self._settings, extras=extras)
        except Exception as error:
            tried = f"tried with {TRIED['skyrl_rows'].version}"
            message = f'skyrl-gym ({tried}) cannot make "{self._path}": {type(error).__name__}: {error}'
            raise UsageError(message) from error
        prompt, _ = self._env.init([dict(message) for message in row["prompt"]])
        *opening, last = [{"role": str(message["role"]), "content": str(message["content"])} for message in prompt]
        return last["content"], {**about, "opening": opening} if opening else about

    def step(self, action: str) -> Step:
        """Take an action. skyrl-gym does not say whether a task was solved; its metrics are in ``info``."""
        output = self._env.step(action)
        shown = "\n\n".join(str(message["content"]) for message in output["observations"])
        done = bool(output["done"])
        numbers = {key: float(value) for key, value in self._env.get_metrics().items() if isinstance(value, int | float)}
        return Step(shown, float(output["reward"]), done, False, {"metrics": numbers} if done and numbers else {})

    def close(self) -> None:
        """Close skyrl-gym's environment."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _row(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.task.params or self._rows is None:
            if not isinstance(self.task.params.get("prompt"), list):
                raise UsageError(f'"skyrl:{self._path}" needs a row: write ?rows=FILE.jsonl, or set Task.params["prompt"]')
            return dict(self.task.params), {}
        index = self.task.index
        at = int(self.rng.integers(len(self._rows))) if index is None else index
        if at >= len(self._rows):
            raise UsageError(f'"skyrl:{self._path}" has {len(self._rows)} rows; there is no row {at}')
        return self._rows.rows[at], {"data": {"index": at}}
