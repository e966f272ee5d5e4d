from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra import Env, make_vec
from palestra.errors import EnvError
from palestra.rollout.validation import checked_reset, checked_step
from palestra.trajectory import LARGEST_REWARD, Task, Text

ANYTHING = st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.integers()) | st.dictionaries(st.text(), st.text())


@given(st.tuples(ANYTHING, ANYTHING) | ANYTHING)
def test_a_reset_is_an_observation_and_a_dict_or_an_env_error(result: Any) -> None:
    try:
        observation, info = checked_reset(result)
    except EnvError:
        return
    assert isinstance(observation, str)
    assert isinstance(info, dict)


@given(st.tuples(ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING) | ANYTHING)
def test_a_step_is_five_values_within_bounds_or_an_env_error(result: Any) -> None:
    try:
        step = checked_step(result)
    except EnvError:
        return
    assert isinstance(step.observation, str)
    assert abs(step.reward) <= LARGEST_REWARD
    assert isinstance(step.info, dict)


def test_what_keeps_the_contract_passes_and_info_is_a_copy() -> None:
    info = {"a": 1}
    step = checked_step(((Text("x"),), 1, 0, 1, info))
    assert list(step) == [(Text("x"),), 1.0, False, True, {"a": 1}]
    assert step.info is not info


class Careless(Env):
    """Returns a number where an observation is due."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return 7, {}  # type: ignore[return-value]

    def step(self, action: str) -> Any:
        raise AssertionError("never reached")


def test_a_vector_checks_resets() -> None:
    with make_vec(f"{__name__}:Careless", 2) as vector:
        _, infos = vector.reset(seed=0)
    assert all("an observation is text" in info["failure"].message for info in infos)


async def test_a_server_checks_resets() -> None:
    pytest.importorskip("websockets")
    from palestra.serve import EnvServer
    from palestra.serve.client import RemoteEnv
    from palestra.serve.tokens import new_token

    token = new_token()
    async with EnvServer(f"{__name__}:Careless", token) as server:
        env = RemoteEnv(f"{server.url}#{__name__}:Careless", token=token)
        with pytest.raises(EnvError, match="an observation is text"):
            await env.reset(seed=1)
        await env.close()
