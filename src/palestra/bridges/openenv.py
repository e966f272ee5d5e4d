"""Palestra's environments for OpenEnv's clients. Tried with openenv-core 0.3.0.

``openenv_app(id)`` returns an application for uvicorn, built by OpenEnv's own server, whose actions are ``{"message": TEXT}``
and whose observations are ``{"text": TEXT, "info": {…}}``.
"""

from typing import Any

from palestra.bridges.versions import framework
from palestra.foundation.encoding import decode_json, encode_json
from palestra.registry import make
from palestra.trajectory import text_of

__all__ = ["openenv_app"]


def openenv_app(id: str, *, max_sessions: int = 64, **kwargs: Any) -> Any:
    """Return an ASGI application that serves ``id`` to OpenEnv clients: ``uvicorn.run(openenv_app("game:Sudoku-v0"))``."""
    http_server = framework("openenv", "openenv.core.env_server.http_server", "create_fastapi_app")
    interfaces = framework("openenv", "openenv.core.env_server.interfaces", "Environment")
    types = framework("openenv", "openenv.core.env_server.types", "Action", "Observation", "State")
    create_model = framework("openenv", "pydantic", "create_model").create_model
    action = create_model("TextAction", __base__=types.Action, message=(str, ...))
    observation = create_model(
        "TextObservation", __base__=types.Observation, text=(str, ...), truncated=(bool, False), info=(dict[str, Any], {})
    )
    hosted = type("Hosted", (_Hosted, interfaces.Environment), {"SUPPORTS_CONCURRENT_SESSIONS": True})

    def build() -> Any:
        return hosted(make(id, **kwargs), observation, types.State)

    return http_server.create_fastapi_app(build, action, observation, max_concurrent_envs=max_sessions)


class _Hosted:
    """Implements OpenEnv's ``Environment`` with a Palestra environment."""

    def __init__(self, env: Any, observation: Any, state: Any) -> None:
        super().__init__()
        self._env = env
        self._observation = observation
        self._state = state
        self._episode: str | None = None
        self._steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Any:
        observation, info = self._env.reset(seed=seed)
        self._episode, self._steps = episode_id, 0
        return self._observation(text=text_of(observation), info=_plain(info))

    def step(self, action: Any, timeout_s: float | None = None, **_: Any) -> Any:
        step = self._env.step(action.message)
        self._steps += 1
        return self._observation(
            text=text_of(step.observation),
            reward=step.reward,
            done=step.terminated or step.truncated,
            truncated=step.truncated,
            info=_plain(step.info),
        )

    @property
    def state(self) -> Any:
        return self._state(episode_id=self._episode, step_count=self._steps)

    def close(self) -> None:
        self._env.close()


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    return decode_json(encode_json(info), dict)
