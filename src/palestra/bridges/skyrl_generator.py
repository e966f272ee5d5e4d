"""Palestra's episodes through SkyRL's ``GeneratorInterface``, sampled by SkyRL's inference engines. Tried with skyrl 0.4.0.

SkyRL receives the ids that were sampled, their log-probs and the mask. The reward of each turn is on the turn's last token.

A failed episode has a loss mask of zeros. SkyRL has no word for "not scored", so its reward is the mean of the scored episodes
of its group: the mean of the group stays what it is without the failed episode, and no token of it is trained on. The standard
deviation of the group becomes smaller, because SkyRL counts the failed episode as one at the mean: with
``trainer.algorithm.grpo_norm_by_std``, the other members have somewhat larger advantages.

An episode of several segments needs ``generator.step_wise_trajectories``: each segment is a row of its own. SkyRL then reads
only the reward of an episode's last row, so the last token of that row has the reward of the whole episode.
"""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from palestra.bridges.sequences import note_failures
from palestra.bridges.skyrl import metrics_of, read_task, register
from palestra.bridges.versions import framework
from palestra.core import Renderer, Sampling
from palestra.errors import PolicyError, UsageError
from palestra.inference.engines.calls import CallEngine, Sampled
from palestra.policies.sampled import SampledPolicy
from palestra.rollouts import EpisodeKey, EpisodeRunner, RolloutOptions
from palestra.trajectory import StopReason, Trajectory, flatten

__all__ = ["generator"]

_session: ContextVar[str] = ContextVar("session")
_CUT = {StopReason.LENGTH_CUT, StopReason.CONTEXT_OVERFLOW, StopReason.TOKEN_LIMIT}


def generator(
    cfg: Any,
    client: Any,
    tokenizer: Any,
    *,
    model: str | None = None,
    renderer: Renderer | None = None,
    options: RolloutOptions | None = None,
) -> Any:
    """Return a ``GeneratorInterface`` that plays Palestra's episodes, for ``BasePPOExp.get_generator``.

    Args:
        cfg: SkyRL's ``GeneratorConfig``, with ``max_input_length``.
        client: SkyRL's client of the inference engines.
        tokenizer: The tokenizer of the model.
        model: The name under which the engines know the policy, as for ``SkyRLGymGenerator``.
        renderer: Turns messages into token ids; by default one that keeps all sampled text, unless ``step_wise_trajectories``.
        options: Deadline, turn limit, retries, wrappers and tools; by default SkyRL's ``max_turns`` limits the turns.

    Raises:
        UsageError: While generating, if an episode has several segments and ``step_wise_trajectories`` is off.
    """
    base, utils, engines = _skyrl()
    register()
    if cfg.sampling_params.logprobs is None or cfg.zero_reward_on_non_stop:
        raise UsageError("Palestra needs generator.sampling_params.logprobs=1 and generator.zero_reward_on_non_stop=false")
    from palestra.inference.rendering import renderer_for

    settings = options or RolloutOptions(max_turns=cfg.max_turns)
    chosen = renderer or renderer_for(tokenizer, append_only=not cfg.step_wise_trajectories)

    class PalestraGenerator(base.GeneratorInterface):  # type: ignore[name-defined]
        async def generate(self, input_batch: Any, disable_tqdm: bool = True) -> Any:
            tasks = [read_task(prompt) for prompt in input_batch["prompts"]]
            names = input_batch.get("trajectory_ids") or [base.TrajectoryID(str(at), 0) for at in range(len(tasks))]
            sampling = input_batch.get("sampling_params") or engines.get_sampling_params_for_backend(
                "vllm", cfg.sampling_params
            )
            version = getattr(client, "weight_version", None)
            salted = cfg.use_cache_salt and version is not None
            salt = {"cache_salt": utils.build_vllm_cache_salt(version, model)} if salted else {}
            length = cfg.max_input_length + (most := sampling["max_tokens"])
            engine = CallEngine(_call(client, model, sampling, salt), context_length=length, version=version or 0)
            policy = SampledPolicy(chosen, engine, Sampling(max_tokens=most, temperature=sampling["temperature"]))
            step = getattr(input_batch.get("batch_metadata"), "global_step", 0)
            keys = [
                EpisodeKey(task, step, at, name.repetition_id) for at, (task, name) in enumerate(zip(tasks, names, strict=True))
            ]
            async with EpisodeRunner(policy, settings) as runner, asyncio.TaskGroup() as group:
                work = [group.create_task(_episode(runner, key, name, client)) for key, name in zip(keys, names, strict=True)]
            output = _output(cfg, [episode.result() for episode in work], names, chosen.stop_ids[0])
            if cfg.apply_overlong_filtering:
                output["loss_masks"] = utils.apply_overlong_filtering(output["loss_masks"], output["stop_reasons"])
            shown = (output["response_ids"], output["rewards"], output["env_metrics"], ["palestra"] * len(output["rewards"]))
            output["rollout_metrics"] = utils.get_rollout_metrics(*shown)
            return output

    return PalestraGenerator()


def _skyrl() -> tuple[Any, Any, Any]:
    """Return SkyRL's modules, with the names that the generator uses."""
    used = ("apply_overlong_filtering", "build_vllm_cache_salt", "get_rollout_metrics")
    return (
        framework("skyrl", "skyrl.train.generators.base", "GeneratorInterface", "TrajectoryID"),
        framework("skyrl", "skyrl.train.generators.utils", *used),
        framework("skyrl", "skyrl.backends.skyrl_train.inference_servers.engine_utils", "get_sampling_params_for_backend"),
    )


def _call(client: Any, model: str | None, sampling: dict[str, Any], salt: dict[str, Any]) -> Any:
    async def call(ids: list[int], limits: Sampling) -> Sampled:
        params = {**sampling, "max_tokens": limits.max_tokens}
        request = {"prompt_token_ids": [ids], "session_ids": [_session.get()], "sampling_params": params, **salt}
        output = await client.generate(request, model=model)
        if (reason := output["stop_reasons"][0]) not in ("stop", "length"):
            raise PolicyError(f"SkyRL's engines ended a reply with {reason!r}")
        return Sampled(output["response_ids"][0], output["response_logprobs"][0], reason == "stop")

    return call


async def _episode(runner: EpisodeRunner, key: EpisodeKey, name: Any, client: Any) -> Trajectory:
    _session.set(name.to_string())  # all calls of an episode go to one engine
    try:
        (played,) = await runner.play(key)
    finally:
        await client.finish_session(name.to_string())
    return played


def _output(cfg: Any, played: Sequence[Trajectory], names: Sequence[Any], filler: int) -> dict[str, Any]:
    note_failures(played, "SkyRL")
    scored: dict[str, list[float]] = {}
    for trajectory, name in zip(played, names, strict=True):
        scored.setdefault(name.instance_id, []).extend([] if trajectory.stop.failed else [trajectory.reward or 0.0])
    columns = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs", "rewards", "stop_reasons", "env_metrics")
    output: dict[str, Any] = {key: [] for key in (*columns, "trajectory_ids", "is_last_step", "trajectory_generation_times")}
    for trajectory, name in zip(played, names, strict=True):
        rows = _rows(trajectory, float(np.mean(scored[name.instance_id] or [0.0])), filler)
        if len(rows) > 1 and not cfg.step_wise_trajectories:
            raise UsageError(
                f'an episode of "{trajectory.task.env}" has {len(rows)} segments, and SkyRL takes one sequence per episode: '
                f"set generator.step_wise_trajectories=true, or use a renderer with append_only=True"
            )
        metrics = (
            {}
            if trajectory.stop.failed or not trajectory.turns
            else metrics_of(len(trajectory.turns), trajectory.turns[-1].info)
        )
        for at, row in enumerate(rows):
            cells = (
                *row,
                "length" if trajectory.stop in _CUT else "stop",
                metrics,
                name,
                at == len(rows) - 1,
                trajectory.seconds,
            )
            for key, cell in zip(output, cells, strict=True):
                output[key].append(cell)
    if not cfg.step_wise_trajectories:
        output["trajectory_ids"] = output["is_last_step"] = None
    return output


def _rows(played: Trajectory, mean: float, filler: int) -> list[Any]:
    """Prompt, response, mask, log-probs and rewards per segment. One masked token stands for an episode without any."""
    flats = [(flat.prompt, flat.response, flat.mask, flat.logprobs, flat.rewards) for flat in flatten(played)]
    rows: list[Any] = [[column.tolist() for column in flat] for flat in flats] or [[[filler], [filler], [0], [0.0], [0.0]]]
    if played.stop.failed or len(rows) > 1:
        for row in rows:
            row[2] = [0] * len(row[2]) if played.stop.failed else row[2]
            row[4] = [0.0] * len(row[4])
        rows[-1][4][-1] = mean if played.stop.failed else played.reward or 0.0
    return rows
