"""Palestra's environments in verl: an agent loop in which Palestra plays the episode and verl samples. Tried with verl 0.9.1.

Name the loop in a YAML file and pass it as ``actor_rollout_ref.rollout.agent.agent_loop_config_path``. Every key other than
``name`` and ``_target_`` is a keyword of ``PalestraAgentLoop``::

    - name: palestra
      _target_: palestra.bridges.verl.PalestraAgentLoop
      max_tokens: 512

``task_rows`` makes the rows of the data set, to be written as Parquet. verl samples with its own temperature, ``top_p`` and
``top_k``. It puts the sum of the rewards on the last sampled token.

verl cannot record an episode without a reward, and it takes one sequence per episode:

- A failed episode raises an exception, which ends the batch (``failed="raise"``). With ``failed="mask"`` its tokens are masked
  out, so that nothing is learned from them, but verl counts a reward of 0 in the mean of its group.
- An episode of several segments raises ``UsageError``.
"""

from collections.abc import Iterable
from typing import Any, Literal
from uuid import uuid4

from palestra.bridges.rows import task_of, task_text
from palestra.bridges.sequences import appending_renderer, only_sequence, play_sequence, scored
from palestra.bridges.versions import framework
from palestra.core import Sampling
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.inference.engines.calls import Sampled
from palestra.trajectory import Task, Trajectory

__all__ = ["agent_loop", "task_rows"]

NAME = "palestra"


def task_rows(tasks: Iterable[Task], agent_name: str = NAME) -> list[dict[str, Any]]:
    """Return rows for verl's ``RLHFDataset``. verl requires the column ``prompt``; the environment writes its own first prompt.

    Example::

        Dataset.from_list(task_rows(tasks)).to_parquet("train.parquet")
    """
    return [
        {
            "prompt": [{"role": "user", "content": f"{task.env} {task.seed}"}],
            "task": task_text(task),
            "agent_name": agent_name,
            "data_source": NAME,
            "reward_model": {"style": "environment", "ground_truth": ""},
        }
        for task in tasks
    ]


def __getattr__(name: str) -> Any:
    # verl finds the class by its name. It is made when it is asked for, because its base class is verl's.
    if name == "PalestraAgentLoop":
        globals()[name] = agent_loop()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def agent_loop() -> type:
    """Return ``PalestraAgentLoop``, a subclass of verl's ``AgentLoopBase``.

    Raises:
        MissingExtra: verl is not installed, or a version without agent loops.
    """
    verl = framework("verl", "verl.experimental.agent_loop.agent_loop", "AgentLoopBase", "AgentLoopOutput", "AgentLoopMetrics")

    class PalestraAgentLoop(verl.AgentLoopBase):  # type: ignore[name-defined]
        """Plays one episode per row.

        Args:
            max_tokens: The token limit of one turn.
            failed: What becomes of a failed episode: ``"raise"`` or ``"mask"``.
            options: Further keywords of ``palestra.play``: ``deadline``, ``max_turns``, ``retries``, ``tools``, …
        """

        def __init__(
            self,
            *args: Any,
            max_tokens: int = 512,
            failed: Literal["raise", "mask"] = "raise",
            options: dict[str, Any] | None = None,
            **kwargs: Any,
        ) -> None:
            super().__init__(*args, **kwargs)
            if failed not in ("raise", "mask"):
                raise UsageError(f'failed is "raise" or "mask", got "{failed}"')
            self.max_tokens = max_tokens
            self.failed = failed
            self.options = dict(options or {})

        async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
            played = await _play(self, sampling_params, task_of(row))
            return verl.AgentLoopOutput(metrics=verl.AgentLoopMetrics(), **_output(self, played))

    return PalestraAgentLoop


async def _play(loop: Any, sampling_params: dict[str, Any], task: Task) -> Trajectory:
    request_id = uuid4().hex  # one id per episode: verl keeps it on the replica that has its prefix

    async def call(prompt_ids: list[int], sampling: Sampling) -> Sampled:
        wanted = {**sampling_params, "max_tokens": sampling.max_tokens, "stop_token_ids": list(sampling.stop_ids)}
        output = await loop.server_manager.generate(request_id=request_id, prompt_ids=prompt_ids, sampling_params=wanted)
        if getattr(output, "stop_reason", None) in ("abort", "aborted"):
            raise InfrastructureError("verl aborted the request")
        ids = list(output.token_ids)
        if ids and not output.log_probs and loop.rollout_config.calculate_log_probs:
            raise PolicyError("verl's server returned no log-probs, although rollout.calculate_log_probs asks for them")
        logprobs = list(output.log_probs) if output.log_probs else [0.0] * len(ids)
        return Sampled(ids, logprobs, bool(ids) and ids[-1] in sampling.stop_ids)

    lengths = loop.rollout_config
    return await play_sequence(
        task,
        call,
        appending_renderer(loop.tokenizer),
        max_tokens=loop.max_tokens,
        context_length=lengths.prompt_length + lengths.response_length,
        response_length=lengths.response_length,
        **loop.options,
    )


def _output(loop: Any, played: Trajectory) -> dict[str, Any]:
    lengths, masked = loop.rollout_config, played.stop.failed and loop.failed == "mask"
    reward = 0.0 if masked else scored(played, "verl")
    if masked and not played.segments:
        stop = appending_renderer(loop.tokenizer).stop_ids[0]
        prompt, response, mask, logprobs = [stop], [stop], [0], [0.0]
    else:
        flat = only_sequence(played, "verl")
        prompt, response, logprobs = flat.prompt.tolist(), flat.response.tolist(), flat.logprobs.tolist()
        mask = [0] * len(response) if masked else flat.mask.tolist()
    if len(prompt) > lengths.prompt_length:
        raise UsageError(
            f"the first prompt of {played.task} has {len(prompt)} tokens, rollout.prompt_length is {lengths.prompt_length}: "
            f"raise data.max_prompt_length"
        )
    return {
        "prompt_ids": prompt,
        "response_ids": response,
        "response_mask": mask,
        "response_logprobs": logprobs if lengths.calculate_log_probs else None,
        "reward_score": reward,
        "num_turns": 2 * len(played.turns),
        "extra_fields": {
            "turn_scores": [turn.reward for turn in played.turns],
            "tool_rewards": [],
            "reward_extra_info": {"success": float(bool(played.success)), "failed": float(played.stop.failed)},
        },
    }
