"""Palestra's environments in OpenRLHF, in two ways. Tried with OpenRLHF 0.11.2.

Write a file for ``--train.agent_func_path``. In the first way, Palestra plays the episode and OpenRLHF's vLLM engine samples::

    from palestra.bridges.openrlhf import agent_executor

    AgentExecutor = agent_executor(max_tokens=512)

The second way is OpenRLHF's own loop, ``MultiTurnAgentExecutor``, with an agent around the environment::

    AgentExecutor = multi_turn_executor("Qwen/Qwen3-4B")

Prefer the first. The second exchanges text, so it refuses a tokenizer that encodes the text of a prompt to other ids. OpenRLHF
does not say when it gives up an episode; the environment is then closed by the garbage collector, or after ``idle`` seconds.
In both ways a reply that the token limit has cut is not a move: it ends the episode.

``label`` of a row is the task as JSON: ``task_rows`` writes it. OpenRLHF cannot record an episode without a reward, so a failed
episode raises an exception, and it takes one sequence per episode, so an episode of several segments raises ``UsageError``.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from copy import deepcopy
from typing import Any

from palestra.bridges.leases import LentEnv, first_messages
from palestra.bridges.rows import task_of, task_text
from palestra.bridges.sequences import appending_renderer, exact_text, only_sequence, play_sequence, scored
from palestra.bridges.versions import framework
from palestra.core import Sampling
from palestra.errors import InfrastructureError, PolicyError
from palestra.foundation.encoding import ints
from palestra.inference.engines.calls import Sampled
from palestra.trajectory import Finish, Task, Trajectory, observed

__all__ = ["agent_executor", "multi_turn_executor", "task_rows"]

_finish: ContextVar[str] = ContextVar("finish")
"""How the last reply of this episode ended. OpenRLHF's own loop does not pass it to the agent."""


def task_rows(tasks: Iterable[Task]) -> list[dict[str, str]]:
    """Return rows for ``--data.input_key prompt --data.label_key label``. The environment writes its own first prompt."""
    return [{"prompt": f"{task.env} {task.seed}", "label": task_text(task)} for task in tasks]


def agent_executor(*, max_tokens: int = 512, **options: Any) -> type:
    """Return the class ``AgentExecutor``: it plays one episode per call on OpenRLHF's engine.

    Args:
        max_tokens: The token limit of one turn; a smaller ``--rollout.max_new_tokens`` is obeyed.
        options: Further keywords of ``palestra.play``: ``deadline``, ``max_turns``, ``retries``, ``tools``, …

    Raises:
        MissingExtra: OpenRLHF is not installed, or a version without ``openrlhf.utils.agent``.
    """
    agent = framework("openrlhf", "openrlhf.utils.agent", "AgentExecutorBase")

    class AgentExecutor(agent.AgentExecutorBase):  # type: ignore[name-defined]
        async def execute(
            self,
            prompt: Any,
            label: str,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            played = await play_sequence(
                task_of(label),
                _calling(llm_engine, sampling_params),
                appending_renderer(hf_tokenizer),
                max_tokens=min(max_tokens, sampling_params.max_tokens or max_tokens),
                context_length=max_length,
                **options,
            )
            row = {"prompt": prompt, "label": label, "images": images}
            return {**row, **_response(played, sampling_params.logprobs is not None)}

    return AgentExecutor


class _Noting:
    """OpenRLHF's engine. It notes how a reply ended, and refuses one that was aborted."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        output = await self._engine.generate(*args, **kwargs)
        _finish.set(output.outputs[0].finish_reason)
        if _finish.get() not in ("stop", "length"):
            raise InfrastructureError(f"OpenRLHF's engine ended a reply with {_finish.get()!r}")
        return output


def _calling(engine: Any, sampling_params: Any) -> Any:
    async def call(prompt_ids: list[int], sampling: Sampling) -> Sampled:
        wanted = deepcopy(sampling_params)
        wanted.max_tokens, wanted.stop_token_ids = sampling.max_tokens, list(sampling.stop_ids)
        output = (await _Noting(engine).generate(prompt_ids, wanted)).outputs[0]
        ids = list(output.token_ids)
        if output.logprobs is not None:
            logprobs = [likeliest[token_id].logprob for token_id, likeliest in zip(ids, output.logprobs, strict=True)]
        elif wanted.logprobs is None:
            logprobs = [0.0] * len(ids)  # OpenRLHF does not use them: it recomputes them in training
        else:
            raise PolicyError("OpenRLHF's engine returned no log-probs, although sampling_params.logprobs asks for them")
        return Sampled(ids, logprobs, output.finish_reason == "stop")

    return call


def _response(played: Trajectory, logprobs: bool) -> dict[str, Any]:
    reward = scored(played, "OpenRLHF")
    flat = only_sequence(played, "OpenRLHF")
    (segment,) = played.segments
    before = [0.0] * len(flat.prompt)
    return {
        "mm_train_inputs": None,
        "reward": reward,
        "scores": float(bool(played.success)),
        "observation_tokens": segment.ids.tolist(),
        "action_ranges": [(span.start, span.stop) for span in segment.spans],
        "rollout_log_probs": before + flat.logprobs.tolist() if logprobs else None,
        "truncated": played.turns[-1].completion.finish in (Finish.LENGTH, Finish.OVERFLOW),
        "extra_logs": {"turns": len(played.turns)},
    }


def multi_turn_executor(tokenizer: Any, *, idle: float = 3600.0) -> type:
    """Return the class ``AgentExecutor`` of OpenRLHF's own loop.

    Args:
        tokenizer: The tokenizer of the model, or the name to load it by. OpenRLHF does not pass it to an agent.
        idle: Seconds without a call after which an environment is closed.
    """
    agent = framework("openrlhf", "openrlhf.utils.agent", "AgentInstanceBase", "MultiTurnAgentExecutor")

    class AgentInstance(agent.AgentInstanceBase):  # type: ignore[name-defined]
        def __init__(self) -> None:
            self._words = _tokenizer(tokenizer)
            self._renderer = appending_renderer(self._words)

        async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, str]:
            task = task_of(states["label"])
            self._env = LentEnv(task.env, idle=idle)
            messages = first_messages(*await self._env.reset_async(task=task))
            return {"observation": self._text(self._renderer.first(messages))}

        async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
            import torch

            stop, reward, done, feedback = self._renderer.stop_ids[0], 0.0, True, ""
            if _finish.get() != "length":
                text = states["action_text"].removesuffix(self._words.decode([stop]))
                observation, reward, terminated, truncated, info = await self._env.step_async(text)
                done = terminated or truncated
            if done:
                await self._env.close_async()
            else:
                tail = self._renderer.extend(ints([stop]), ints([stop]), [observed(observation, info)])
                feedback = self._text(tail)
            return {"rewards": torch.tensor(reward), "environment_feedback": feedback, "done": done, "extra_logs": {}}

        def _text(self, ids: Any) -> str:
            return exact_text(self._words, ids, "OpenRLHF's own loop")

    class AgentExecutor(agent.MultiTurnAgentExecutor):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__(AgentInstance)

        async def execute(self, *, llm_engine: Any, **given: Any) -> Any:
            return await super().execute(llm_engine=_Noting(llm_engine), **given)

    return AgentExecutor


def _tokenizer(named: Any) -> Any:
    if not isinstance(named, str):
        return named
    import transformers

    return transformers.AutoTokenizer.from_pretrained(named)
