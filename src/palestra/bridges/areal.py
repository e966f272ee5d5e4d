"""Palestra's environments as a workflow of AReaL. Tried with AReaL 1.0.4.

AReaL samples and schedules; Palestra plays. Every token has the version of the weights that sampled it, so AReaL's
correction for stale tokens is exact even if the weights change in the middle of a reply. A failed episode is ``None``,
AReaL's word for a rejected one: it is not trained on, and it is not a zero. An episode of several segments becomes several
rows with the same reward.

``PalestraWorkflow`` is made when it is first used, since it inherits from AReaL's ``RolloutWorkflow``. AReaL also loads it
by name::

    trainer.train(
        workflow="palestra.bridges.areal.PalestraWorkflow",
        workflow_kwargs={"gconfig": config.gconfig, "tokenizer": config.tokenizer_path},
    )
"""

from typing import Any
from uuid import uuid4

import numpy as np

from palestra.bridges.rows import task_of, task_rows
from palestra.bridges.sequences import note_failures
from palestra.bridges.versions import framework
from palestra.core import Renderer, Sampling
from palestra.errors import InfrastructureError
from palestra.inference.engines.calls import CallEngine, Sampled
from palestra.policies.sampled import SampledPolicy
from palestra.rollouts.verbs import play
from palestra.trajectory import Segment, Trajectory

__all__ = ["PalestraWorkflow", "task_rows"]  # noqa: F822 - PalestraWorkflow is made by __getattr__


class _Workflow:
    """Plays one episode per row of the data set; the column ``task`` holds the task (``task_rows``).

    Args:
        gconfig: AReaL's ``GenerationHyperparameters``. ``max_new_tokens`` limits a turn, ``max_tokens`` the whole context.
        tokenizer: The tokenizer, or the name that transformers loads it by.
        renderer: Renders the messages; by default the renderer of the tokenizer.
        options: The keywords of ``palestra.play``, such as ``deadline`` and ``max_turns``.
    """

    def __init__(self, gconfig: Any, tokenizer: Any, *, renderer: Renderer | None = None, **options: Any) -> None:
        from palestra.inference.rendering import renderer_for

        if isinstance(tokenizer, str):
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        self.gconfig, self.tokenizer, self.options = gconfig, tokenizer, options
        self.renderer = renderer or renderer_for(tokenizer)
        self.sampling = Sampling(max_tokens=gconfig.max_new_tokens, temperature=0.0 if gconfig.greedy else gconfig.temperature)

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        """Play the task of a row, and return its tensors; ``None`` if the episode failed."""
        policy = SampledPolicy(self.renderer, self._engine(engine), self.sampling)
        played = await play(task_of(data), policy, **self.options)
        note_failures([played], "AReaL")
        return None if played.stop.failed or not played.segments else _rows(played)

    def _engine(self, engine: Any) -> CallEngine:
        request_of = framework("areal", "areal.api", "ModelRequest").ModelRequest
        rid = uuid4().hex  # one for the whole episode: AReaL keeps it on the replica that has the prefix in its cache

        async def call(prompt_ids: list[int], sampling: Sampling) -> Sampled:
            wanted = self.gconfig.new(n_samples=1, max_new_tokens=sampling.max_tokens, stop_token_ids=list(sampling.stop_ids))
            request = request_of(rid=rid, input_ids=prompt_ids, gconfig=wanted, tokenizer=self.tokenizer)
            answer = await engine.agenerate(request)
            if answer.stop_reason == "abort":
                raise InfrastructureError("AReaL aborted the request")
            stopped = answer.stop_reason != "length"
            return Sampled(answer.output_tokens, answer.output_logprobs, stopped, answer.output_versions or None)

        return CallEngine(call, context_length=self.gconfig.max_tokens, version=engine.get_version())


def _rows(played: Trajectory) -> dict[str, Any]:
    """The tensors that AReaL trains on: one row per segment, padded on the right."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    columns: dict[str, list[Any]] = {}
    for segment in played.segments:
        for name, values in _columns(segment).items():
            columns.setdefault(name, []).append(torch.as_tensor(values))
    padded = {name: pad_sequence(values, batch_first=True) for name, values in columns.items()}
    assert played.reward is not None
    return {**padded, "rewards": torch.full((len(played.segments),), played.reward, dtype=torch.float32)}


def _columns(segment: Segment) -> dict[str, Any]:
    logprobs = np.zeros(len(segment.ids), dtype=np.float32)
    logprobs[segment.mask] = segment.logprobs
    return {
        "input_ids": segment.ids.astype(np.int32),
        "logprobs": logprobs,
        "loss_mask": segment.mask.astype(np.int32),
        "versions": segment.versions.astype(np.int32),
        "attention_mask": np.ones(len(segment.ids), dtype=np.bool_),
    }


def __getattr__(name: str) -> Any:
    if name != "PalestraWorkflow":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = framework("areal", "areal.api", "RolloutWorkflow").RolloutWorkflow
    made = type(name, (_Workflow, base), {"__module__": __name__, "__doc__": _Workflow.__doc__})
    return globals().setdefault(name, made)
