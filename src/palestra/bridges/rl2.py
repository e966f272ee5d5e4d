"""Palestra's environments in RL2. Tried with rl-square 0.0.2 from PyPI. This file is RL2's environment file::

    rollout.env_path=$(python -c "import palestra.bridges.rl2 as file; print(file.__file__)")
    +rollout.train_sampling_params.skip_special_tokens=false +rollout.test_sampling_params.skip_special_tokens=false

RL2 runs the loop over text, and its state is the rendered chat. It passes no tokenizer, so a row of the data set names the
model beside the task (``task_rows``). RL2 tokenizes each observation itself and keeps the sampled ids as they are; a tokenizer
that encodes the text of an observation to other ids is refused. Every turn has its own reward. If the chat template rewrites
earlier messages, the next state does not continue the last, and RL2 begins a new sequence.

RL2 does not say whether the token limit has cut a reply. These settings, with RL2's own ``no_stop_trim=true``, keep the stop
token in the text: a reply without it was cut, is not a move, and ends the episode with the reward 0. RL2 cannot record that an
episode failed: the error of the environment ends the rollout of the batch. RL2 closes nothing: an environment is closed at the
end of its episode, or when RL2 drops the row.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from palestra.bridges import rows
from palestra.bridges.leases import LentEnv, first_messages
from palestra.bridges.sequences import exact_text
from palestra.bridges.versions import called_by
from palestra.core import Renderer
from palestra.errors import UsageError
from palestra.foundation.encoding import ints
from palestra.trajectory import Message, Task, observed

__all__ = ["reset", "step", "task_rows"]

PATIENCE = 64
"""Replies without a stop token, before the first with one, that are taken for cut ones."""

_replies = {"cut": 0, "stopped": 0}


def task_rows(tasks: Iterable[Task], model: str) -> list[dict[str, Any]]:
    """Return one row per task for RL2's data set. ``model`` is the folder or name that transformers loads the tokenizer by."""
    return [{"extra_info": row} for row in rows.task_rows(tasks, model=model)]


@called_by("rl2")
async def reset(extra_info: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Begin the episode of a row, and return the rendered first state."""
    task = rows.task_of(extra_info)
    tokenizer, renderer = _loaded(extra_info["model"])
    lent = LentEnv(task.env)
    observation, info = await lent.reset_async(task=task)
    messages = first_messages(observation, info)
    return exact_text(tokenizer, renderer.first(messages), "RL2"), {**extra_info, "lent": lent, "messages": messages}


@called_by("rl2")
async def step(state: str, action: str, extra_info: dict[str, Any]) -> dict[str, Any]:
    """Play a reply, and return the state with the environment's answer, the reward, and whether the episode is over."""
    tokenizer, renderer = _loaded(extra_info["model"])
    lent, messages = extra_info["lent"], extra_info["messages"]
    if not any(action.endswith(tokenizer.decode([stop])) for stop in renderer.stop_ids):
        _count_cut()
        await lent.close_async()
        return {"next_state": state + action, "reward": 0.0, "score": 0.0, "done": True, "extra_info": extra_info}
    _replies["stopped"] += 1
    prompt, ids = (ints(tokenizer.encode(text, add_special_tokens=False)) for text in (state, action))
    text, reasoning = renderer.read(prompt, ids)
    observation, reward, terminated, truncated, info = await lent.step_async(text)
    done = terminated or truncated
    if done:
        await lent.close_async()
    messages = [*messages, Message("assistant", text, reasoning), observed(observation, info)]
    tail = renderer.extend(prompt, ids, messages[-1:])
    if tail is None:
        state = exact_text(tokenizer, renderer.first(messages), "RL2")
    else:
        state = state + action + exact_text(tokenizer, tail, "RL2")
    extra_info = {**extra_info, "messages": messages}
    return {"next_state": state, "reward": reward, "score": reward, "done": done, "extra_info": extra_info}


def _count_cut() -> None:
    _replies["cut"] += 1
    if not _replies["stopped"] and _replies["cut"] >= PATIENCE:
        raise UsageError(
            f"none of the first {PATIENCE} replies ended with a stop token: set skip_special_tokens=false and "
            f"no_stop_trim=true in RL2's train_sampling_params and test_sampling_params, or raise max_new_tokens"
        )


@cache
def _loaded(model: str) -> tuple[Any, Renderer]:
    from transformers import AutoTokenizer

    from palestra.inference.rendering import renderer_for

    tokenizer = AutoTokenizer.from_pretrained(model)
    return tokenizer, renderer_for(tokenizer)
